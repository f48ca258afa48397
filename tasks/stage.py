"""A stage as a Prefect task: it calls the core, shows its progress and publishes a card."""

from __future__ import annotations

import functools
import os
import sys
from typing import Any, cast

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.runtime import flow_run
from prefect.settings import PREFECT_UI_URL
from prefect.tasks import exponential_backoff

from offline_core.errors import OfflineError
from offline_core.keeping.cards import observe_cards
from offline_core.keeping.perform import perform
from offline_core.runtime.provenance import made_in_run
from offline_core.runtime.stage import Stage
from tasks.artifacts import publish
from tasks.crash import crashing
from tasks.progress import progress_shown
from tasks.run_names import name_of, template_of

RETRIES = 2
FIRST_DELAY_SECONDS = 5


def task_of(entry: Stage[..., Any]) -> Task[..., Any]:
    """The task of a stage.

    Tried again, later and later, after what may pass by itself, and never after what would come again. Prefect keeps no
    result of it: the core finds what was made before by what it was made of, and a second memory could only be wrong.
    """

    def run(config: Any, **arguments: Any) -> Any:
        show = functools.partial(publish, key=f"{entry.title}-card")
        with crashing(), made_in_run(run_to_look_at()), progress_shown(), observe_cards(show):
            return perform(entry, config, arguments, runs_url=url_of_ui())

    def name_run(parameters: dict[str, Any]) -> str:
        return name_of(template_of(entry), parameters | parameters.get("arguments", {}))

    run.__name__ = run.__qualname__ = entry.attribute
    run.__doc__ = entry.help
    made: Task[..., Any] = task(
        name=entry.title,
        task_run_name=cast(Any, name_run),
        cache_policy=NO_CACHE,
        persist_result=False,
        retries=RETRIES,
        retry_delay_seconds=exponential_backoff(backoff_factor=FIRST_DELAY_SECONDS),
        retry_jitter_factor=0.2,
        retry_condition_fn=_may_pass,
    )(run)
    return made


def run_to_look_at() -> str | None:
    """The id of the running flow, if a UI will know it later: there is none of a temporary server."""
    return flow_run.id if PREFECT_UI_URL.value() else None


def url_of_ui() -> str | None:
    """Where people look at runs, if they can."""
    return PREFECT_UI_URL.value() or os.environ.get("PREFECT_UI_URL")


def _may_pass(_task: Any, _run: Any, state: Any) -> bool:
    """Whether what ended a try may pass: a place or a server that does not answer, something that Ray lost."""
    error = state.data
    rays = sys.modules.get("ray.exceptions")  # an error cannot be Ray's before Ray is imported
    while rays and isinstance(error, rays.RayTaskError):
        error = error.cause  # Ray only hands it on
    if isinstance(error, OfflineError):
        return error.may_pass
    if rays and isinstance(error, rays.RayActorError):
        return not error.actor_init_failed  # what cannot begin will not begin the next time
    lost = [rays.NodeDiedError, rays.WorkerCrashedError, rays.OutOfMemoryError, rays.ObjectLostError] if rays else []
    return isinstance(error, (ConnectionError, TimeoutError, *lost))
