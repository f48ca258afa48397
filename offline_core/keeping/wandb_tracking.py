"""A stage as a run of Weights & Biases, where `WANDB_PROJECT` names a project."""

from __future__ import annotations

import math
import os
from typing import Any

from pydantic import BaseModel

from offline_core.keeping.tracking import axis_of, flat_values
from offline_core.learning.metrics import Record
from offline_core.runtime.config import without_defaults
from offline_core.runtime.extras import require_extra
from offline_core.runtime.provenance import provenance
from offline_core.runtime.reporting.card import Card
from offline_core.secrets import masked

PROJECT = "WANDB_PROJECT"
_DEFAULTS = {
    "WANDB_SILENT": "true",  # and so it asks for no key on a terminal
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_INIT_TIMEOUT": "10",
}
_FINISH_SECONDS = 10.0


class WandbRun:
    """See `TrackedRun`."""

    tracker = "W&B"

    def __init__(self, config: BaseModel, operation: str) -> None:
        self._config, self._operation = config, operation
        self._run: Any = None

    def see(self, record: Record) -> None:
        """Report a record."""
        self._opened(axis_of(record)).log(record)

    def report(self, result: BaseModel, card: Card) -> None:
        """Report a result."""
        if self._run is None and getattr(result, "reused", False):
            return
        run = self._opened()
        import wandb

        run.log({"card": wandb.Html(card.html(), inject=False)})
        values = flat_values(masked(result.model_dump(mode="python")))
        run.summary.update({name: value for name, value in values if _is_shown(value)})

    def finish(self, *, has_failed: bool) -> None:
        """End the run."""
        if self._run is not None:
            self._run.finish(exit_code=int(has_failed))

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


def _is_shown(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, int | float) and math.isfinite(value))
