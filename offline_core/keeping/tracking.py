"""Reports stages to trackers that the environment names: parameters, metrics as they come, results and cards.

A tracker is a copy for those who look at it. Nothing is read from it, and losing it is a warning.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from pydantic import BaseModel

from offline_core.learning.metrics import Record, observe_metrics
from offline_core.runtime.reporting.card import Card
from offline_core.runtime.stage import load
from offline_core.secrets import masked_text

log = logging.getLogger("offline_core")  # whose lines Prefect keeps with the run

TRACKERS: Mapping[str, str] = {
    "MLFLOW_TRACKING_URI": "keeping.mlflow_tracking:MlflowRun",
    "WANDB_PROJECT": "keeping.wandb_tracking:WandbRun",
}
"""By the variable that names where to report."""
MOST_PARAMETERS = 100
_NO_NAME = re.compile(r"[^\w./ -]")


class TrackedRun(Protocol):
    """A stage in a tracker, opened there when there is something to report."""

    tracker: str
    """Its name."""

    def __init__(self, config: BaseModel, operation: str) -> None: ...

    def see(self, record: Record) -> None:
        """Report a record of metrics, whose own progress is the axis, for evaluations are late."""

    def report(self, result: BaseModel, card: Card) -> None:
        """Report a result; one that is reused is no second run."""

    def finish(self, *, has_failed: bool) -> None:
        """End the run, if there is one."""


@contextlib.contextmanager
def tracked(config: BaseModel, *, operation: str, has_metrics: bool) -> Iterator[Callable[[BaseModel, Card], None]]:
    """Report the metrics of the stage inside as they come, and its result by the function that this gives.

    Arguments:
        has_metrics: It is one training. Those of a stage that trains several times would be one curve that goes back and forth.
    """
    runs = [_Careful(load(path)(config, operation)) for variable, path in TRACKERS.items() if os.environ.get(variable)]

    def report(result: BaseModel, card: Card) -> None:
        for run in runs:
            run.do(run.of.report, result, card)

    has_failed = True
    try:
        with contextlib.ExitStack() as seen:
            for run in runs if has_metrics else ():
                seen.enter_context(observe_metrics(run.see))
            yield report
        has_failed = False
    finally:
        for run in runs:
            run.finish(has_failed=has_failed)


class _Careful:
    """Warns of the first error of a tracker, and reports nothing more to it."""

    def __init__(self, of: TrackedRun) -> None:
        self.of, self._is_lost = of, False

    def see(self, record: Record) -> None:
        self.do(self.of.see, record)

    def finish(self, *, has_failed: bool) -> None:
        """End the run; one of which something was lost, too, for it would seem to go on."""
        is_lost, self._is_lost = self._is_lost, False
        if is_lost:
            with contextlib.suppress(Exception):
                self.of.finish(has_failed=True)
        else:
            self.do(self.of.finish, has_failed=has_failed)

    def do(self, work: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        if self._is_lost:
            return
        try:
            work(*args, **kwargs)
        except Exception as error:
            self._is_lost = True
            told = masked_text(str(error))[:500]
            log.warning("%s does not have this stage, whose work goes on: %s: %s", self.of.tracker, type(error).__name__, told)


def axis_of(record: Record) -> str:
    """What counts the progress of a record."""
    return "env_steps" if "env_steps" in record else "updates"


def flat_values(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested values by dotted names that MLflow takes; long lists, such as returns, are left out."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flat_values(value, f"{prefix}{name}.")
        elif value is not None and not (isinstance(value, list | tuple) and len(value) > MOST_PARAMETERS):
            yield plain_name(f"{prefix}{name}"), value


def plain_name(name: str) -> str:
    """A name that MLflow takes."""
    return _NO_NAME.sub("_", name)[:250]
