"""Behaviour cloning whose process dies once, or whose loss fails, in mid training."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from pydantic import Field

from offline_core.learning.algorithms.bc import BC
from offline_core.learning.algorithms.bc_config import BCConfig

MARK = ".died"


class DyingConfig(BCConfig):
    """When it dies."""

    folder: str = Field("", description="The first process dies and leaves a mark there. Empty: all raise an error instead.")


class Dying(BC):
    """Ends before its sixth update."""

    config_class = DyingConfig
    config: DyingConfig

    def before_update(self, updates: int) -> None:
        super().before_update(updates)
        if updates != 5:
            return
        if not self.config.folder:
            raise ZeroDivisionError("nothing was divided")
        mark = Path(self.config.folder) / MARK
        if not mark.exists():
            if mark.parent.is_dir():
                mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
