"""Updates on a GPU: the same as a processor's, launched kernel by kernel, recorded, or compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from offline_core.learning.config import TrainingConfig
from offline_core.learning.learner import Learner
from offline_core.learning.update import CALLS_BEFORE, Replayed
from offline_core.policies.checkpoint import load_policy
from offline_core.runtime.config import parse
from tests.learning.algorithms.making import BOX, TWO, VECTOR, made_steps, make_networks, with_box_actions
from tests.learning.test_resume import ALONE, digest, interrupted, run_train
from tests.learning.test_train import balancing_episodes, dataset_of

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that Torch can use")

WITHOUT_DRAWS = [("bc", True), ("bc", False), ("marwil", True), ("iql", True), ("cql", False), ("dqn", False), ("bcq", False)]
WITH_DRAWS = [("td3_bc", True), ("rebrac", True), ("cql", True), ("cal_ql", True), ("awac", True), ("awac", False)]


def learner(name: str, continuous: bool, *, batch: int = 16, sizes: tuple[int, ...] = (8,), **compute: Any) -> Learner:
    values = {"algorithm": name, "network": {"hidden_sizes": sizes}, "compute": compute}
    values["optimizer"] = {"batch_size": batch, "max_gradient_norm": 1.0, "schedule": "cosine", "max_updates": 100}
    config = parse(TrainingConfig, values)
    networks = make_networks(name, VECTOR, BOX if continuous else TWO, config.network, seed=1)
    one, steps = Learner(networks, config, total_steps=1000), made_steps([40, 24], [True, False])
    one.load(with_box_actions(steps) if continuous else steps)
    return one


def updated(one: Learner, updates: int = 14) -> tuple[dict[str, torch.Tensor], dict[str, float]]:
    """Return the state and the metrics after updates of full batches, and of one that is not."""
    for number in range(updates):
        assert one.update(one.indices()[number % 4 * 16 :][: one.batch_units])
    one.update(one.indices()[:5])
    return one.state(), one.take_metrics()


def recorded(one: Learner) -> list[bool]:
    return [each.is_recorded for each in one._replayed.values()]


@pytest.mark.parametrize(("name", "continuous"), WITHOUT_DRAWS)
def test_a_gpu_learns_what_a_processor_learns(name: str, continuous: bool) -> None:
    (state, metrics), (other, others) = (
        updated(learner(name, continuous, compile=False, gpus_per_learner=gpus)) for gpus in (0, 1)
    )
    torch.testing.assert_close(other, state, rtol=1e-4, atol=1e-5)
    assert others == pytest.approx(metrics, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize(("name", "continuous"), [*WITHOUT_DRAWS, *WITH_DRAWS])
def test_kernels_that_are_replayed_do_what_they_do_one_by_one(name: str, continuous: bool) -> None:
    """Bit for bit: weights, targets, the optimiser, metrics; with a schedule, and with draws of their own each time."""
    launched, replayed = (learner(name, continuous, compile=setting, gpus_per_learner=1) for setting in (False, "auto"))
    (state, metrics), (other, others) = updated(launched), updated(replayed)
    assert recorded(launched) == [] and all(recorded(replayed)) and recorded(replayed)
    torch.testing.assert_close(other, state, rtol=0, atol=0)
    assert others == metrics


def test_more_steps_are_recorded_anew() -> None:
    launched, replayed = (learner("iql", True, compile=setting, gpus_per_learner=1) for setting in (False, "auto"))
    for one in (launched, replayed):
        updated(one)
        one.load(with_box_actions(made_steps([30, 50], [False, True], seed=3)))
    torch.testing.assert_close(updated(replayed), updated(launched), rtol=0, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize(("sizes", "batch"), [((8,), 16), ((1024, 1024), 4096)])
def test_compiled_updates_are_the_same_on_a_gpu(sizes: tuple[int, ...], batch: int) -> None:
    """Also with layers of such sizes that the compiler pads their products."""
    launched, compiled = (
        learner("iql", True, batch=batch, sizes=sizes, compile=setting, gpus_per_learner=1) for setting in (False, True)
    )
    for one in (launched, compiled):
        for _ in range(6):
            one.update(one.indices().repeat(64)[:batch])
    assert recorded(compiled) == [True]
    torch.testing.assert_close(compiled.state(), launched.state(), rtol=1e-3, atol=1e-4)


def test_what_looks_at_numbers_is_never_recorded(caplog: pytest.LogCaptureFixture) -> None:
    total = torch.zeros((), device="cuda")

    def add(number: torch.Tensor) -> torch.Tensor:
        return total.add_(number if number.item() > 0 else -number)

    adding = Replayed(add, "Adding")
    for number in range(-CALLS_BEFORE, CALLS_BEFORE):
        adding(torch.full((), number, device="cuda"), kept=[])
    assert total.item() == sum(map(abs, range(-CALLS_BEFORE, CALLS_BEFORE)))
    assert "Adding looks at numbers that the GPU computes, so its kernels are launched one by one." in caplog.text


def test_a_run_on_a_gpu_resumes_to_the_same_bits_and_plays_without_one(tmp_path: Path) -> None:
    dataset = dataset_of(tmp_path / "data", balancing_episodes(), rows=5, environment=None)
    settings = ALONE | {"compute": {"gpus_per_learner": 1}}
    whole = run_train(dataset, tmp_path / "whole", settings)
    interrupted(dataset, tmp_path / "broken", settings, at=12)
    assert digest(run_train(dataset, tmp_path / "broken", settings)) == digest(whole)
    assert {tensor.device.type for tensor in load_policy(whole.checkpoint).state_dict().values()} == {"cpu"}
