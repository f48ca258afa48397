"""Reports stages to Weights & Biases, if `WANDB_PROJECT` names a project: metrics as they come, parameters, results, cards.

As with MLflow, W&B has a copy. Nothing is read from it, and losing it is a warning.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
from collections.abc import Callable, Iterator
from typing import Any

from pydantic import BaseModel

from offline_core.keeping.tracking import flat_values
from offline_core.learning.metrics import Record, observe_metrics
from offline_core.runtime.config import without_defaults
from offline_core.runtime.extras import require_extra
from offline_core.runtime.provenance import provenance
from offline_core.runtime.reporting.card import Card
from offline_core.secrets import masked, masked_text

log = logging.getLogger("offline_core")  # whose lines Prefect keeps with the run

PROJECT = "WANDB_PROJECT"
_DEFAULTS = {
    "WANDB_SILENT": "true",  # and so it asks for no key on a terminal
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_INIT_TIMEOUT": "10",
}
_FINISH_SECONDS = 10.0


@contextlib.contextmanager
def tracked_by_wandb(config: BaseModel, *, operation: str) -> Iterator[Callable[[BaseModel, Card], None]]:
    """Report the metrics of the stage inside as they come, and its result by the function that this gives."""
    if not os.environ.get(PROJECT):
        yield lambda result, card: None
        return
    run = _Run(config, operation)
    try:
        with observe_metrics(run.see):
            yield run.report
    except BaseException:
        run.finish(exit_code=1)
        raise
    run.finish()


class _Run:
    """A run of W&B, opened when there is something to report: a result that is reused is no second run."""

    def __init__(self, config: BaseModel, operation: str) -> None:
        self._config, self._operation = config, operation
        self._run: Any = None
        self._is_lost = False

    def see(self, record: Record) -> None:
        """Log a record of metrics. Its own progress is the axis, for evaluations are late."""
        axis = "env_steps" if "env_steps" in record else "updates"
        self._try(lambda: self._opened(axis).log(record))

    def report(self, result: BaseModel, card: Card) -> None:
        """Log a result."""
        if self._run is not None or not getattr(result, "reused", False):
            self._try(lambda: self._report(result, card))

    def _report(self, result: BaseModel, card: Card) -> None:
        run = self._opened()
        import wandb

        run.log({"card": wandb.Html(card.html(), inject=False)})
        values = flat_values(masked(result.model_dump(mode="python")))
        run.summary.update({name: value for name, value in values if _is_shown(value)})

    def finish(self, *, exit_code: int = 0) -> None:
        """End the run, if there is one."""
        if self._run is not None:
            self._try(lambda: self._run.finish(exit_code=exit_code))

    def _opened(self, axis: str | None = None) -> Any:
        if self._run is None:
            for name, value in _DEFAULTS.items():
                os.environ.setdefault(name, value)
            with require_extra("wandb"):
                import wandb
            settings = wandb.Settings(
                finish_timeout=_FINISH_SECONDS,
                console="off",  # its lines, the command's words and the machine are sent only where they are asked for
                disable_code=True,
                disable_git=True,
                disable_job_creation=True,
                x_disable_machine_info=True,
                x_disable_meta=True,
                x_disable_stats=True,
                x_save_requirements=False,
            )
            parameters = masked(without_defaults(self._config))
            self._run = wandb.init(
                project=os.environ[PROJECT],
                name=os.environ.get("WANDB_NAME") or self._operation,
                job_type=self._operation,
                config={**parameters, "provenance": provenance()},
                reinit="create_new",  # a run that the caller has open stays the caller's
                settings=settings,
            )
            if axis is not None:
                self._run.define_metric("*", step_metric=axis)
        return self._run

    def _try(self, report: Callable[[], object]) -> None:
        """Warn of the first error, and report nothing more after it."""
        if self._is_lost:
            return
        try:
            report()
        except Exception as error:
            self._is_lost = True
            told = masked_text(str(error))[:500]
            log.warning("W&B does not have this stage, whose work goes on: %s: %s", type(error).__name__, told)


def _is_shown(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, int | float) and math.isfinite(value))
