"""Behaviour cloning whose process dies once, or whose loss fails, in mid training."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from pydantic import Field

from offline_core.learning.algorithms.bc import BC
from offline_core.learning.algorithms.networks import Networks

MARK = ".died"


class Dying(BC):
    """Ends before its sixth update."""

    folder: str = Field("", description="The first process dies and leaves a mark there. Empty: all raise an error instead.")

    def before_update(self, networks: Networks) -> None:
        if networks.updates != 5:
            return
        if not self.folder:
            raise ZeroDivisionError("nothing was divided")
        mark = Path(self.folder) / MARK
        if not mark.exists():
            if mark.parent.is_dir():
                mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
