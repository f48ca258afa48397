"""What all stages have in common as Prefect tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.tasks import exponential_backoff

from offline_core.errors import OfflineError

P = ParamSpec("P")
R = TypeVar("R")

RETRIES = 2
FIRST_DELAY_SECONDS = 5


def stage(name: str, *, task_run_name: str | None = None) -> Callable[[Callable[P, R]], Task[P, R]]:
    """A task that is one stage of the pipeline.

    Tried again, later and later, after what may pass by itself, and never after what would come again. Prefect keeps no
    result of it: the core finds what was made before by what it was made of, and a second memory could only be wrong.
    """
    return task(
        name=name,
        task_run_name=task_run_name,
        cache_policy=NO_CACHE,
        persist_result=False,
        retries=RETRIES,
        retry_delay_seconds=exponential_backoff(backoff_factor=FIRST_DELAY_SECONDS),
        retry_jitter_factor=0.2,
        retry_condition_fn=_may_pass,
    )


def _may_pass(_task: Any, _run: Any, state: Any) -> bool:
    """Whether the error that ended a try is one of those that may pass."""
    error = state.data
    return error.may_pass if isinstance(error, OfflineError) else isinstance(error, (ConnectionError, TimeoutError))
