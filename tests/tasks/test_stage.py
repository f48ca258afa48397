"""Which errors are worth another try: those that Ray really raises, and our own, also from the other side of Ray."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import ray
from prefect.states import Failed
from ray import exceptions

from flows.stages import train
from offline_core.errors import ConfigError, RayLostError, StorageUnavailableError
from offline_core.learning.config import TrainingConfig
from offline_core.runtime.stage import STAGES
from tasks import stages
from tasks.crash import Crash
from tasks.stage import task_of


def is_tried_again(error: BaseException) -> bool:
    prune = task_of(STAGES["prune"])
    condition: Callable[..., Any] | None = prune.retry_condition_fn
    assert condition is not None
    return bool(condition(prune, None, Failed(data=error)))


@ray.remote(num_cpus=0)
class Worker:
    """An actor that can do nothing but fail."""

    def __init__(self, error: Exception | None = None) -> None:
        if error is not None:
            raise error

    def fail(self, error: Exception) -> None:
        raise error

    def end(self) -> None:
        os._exit(1)

    def wait_for(self, other: Any) -> None:
        ray.get(other.end.remote())


@ray.remote(num_cpus=0, max_retries=0)
def end() -> None:
    os._exit(1)


def raised_by(reference: Any) -> BaseException:
    with pytest.raises(exceptions.RayError) as caught:
        ray.get(reference)
    return caught.value


def test_what_ray_lost_is_worth_another_try(ray_up: None) -> None:
    lost_actor = raised_by(Worker.remote().end.remote())
    assert isinstance(lost_actor, exceptions.RayActorError) and is_tried_again(lost_actor)
    lost_process = raised_by(end.remote())
    assert isinstance(lost_process, exceptions.WorkerCrashedError) and is_tried_again(lost_process)
    handed_on = raised_by(Worker.remote().wait_for.remote(Worker.remote()))
    assert isinstance(handed_on, exceptions.RayTaskError) and is_tried_again(handed_on)
    assert is_tried_again(exceptions.RayTaskError("read", "", exceptions.ObjectLostError("00", None, "")))
    assert is_tried_again(exceptions.OutOfMemoryError("full"))
    assert is_tried_again(exceptions.NodeDiedError("gone"))


def test_an_error_from_the_other_side_is_judged_by_itself(ray_up: None) -> None:
    worker = Worker.remote()
    for error, again in (
        (StorageUnavailableError("busy"), True),
        (ConnectionResetError("gone"), True),
        (ConfigError("wrong"), False),
        (ValueError("wrong"), False),
    ):
        assert is_tried_again(error) == is_tried_again(raised_by(worker.fail.remote(error))) == again


def test_an_actor_that_cannot_begin_is_not_tried_again(ray_up: None) -> None:
    error = raised_by(Worker.remote(ConfigError("wrong")).end.remote())
    assert isinstance(error, exceptions.RayActorError) and not is_tried_again(error)


def test_a_ray_that_is_lost_outside_of_a_stage_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*args: Any, **kwargs: Any) -> None:
        raise RayLostError("the raylet died")

    monkeypatch.setattr(stages, "train", lost)
    with pytest.raises(Crash, match="the raylet died"):
        train.fn(config=TrainingConfig())
