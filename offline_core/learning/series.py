"""Which policies a training keeps, and that others go."""

from __future__ import annotations

import math
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from offline_core.learning.checkpoints import Checkpoints
from offline_core.learning.evaluations import Weights
from offline_core.learning.keep_config import KeepConfig
from offline_core.policies.series import saved_in, series_name


def wanted(keep: KeepConfig, iterations: Sequence[int], scores: Sequence[tuple[int, float]], ends: Sequence[int]) -> set[int]:
    """Return the updates of the policies that stay.

    Arguments:
        iterations: updates at the end of each iteration so far, in order.
        scores: (updates, score) of policies that were measured, in order; the higher the better, of equals the first.
        ends: updates after which the run may turn out to have ended; the latest policies of each are needed.
    """
    found: set[int] = set()
    if keep.interval is not None:
        regular = iterations[keep.interval - 1 :: keep.interval]
        for end in ends:
            until = [updates for updates in regular if updates <= end]
            found.update(until if keep.last is None else until[-keep.last :])
    if keep.best is not None:
        ended = set(iterations)
        measured = [(updates, score) for updates, score in scores if updates in ended and not math.isnan(score)]
        measured.sort(key=lambda each: -each[1])
        found.update(updates for updates, _ in measured[: keep.best])
    return found


class Series:
    """The policies of iterations in the folder of a run."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints
        self._saved = {int(name) for name in saved_in(checkpoints.folder)}

    def save(self, updates: int, weights: Weights, metrics: dict[str, float]) -> None:
        """Write or replace one."""
        self._checkpoints.save(series_name(updates), weights, metrics, updates=updates)
        self._saved.add(updates)

    def keep_only(self, updates: AbstractSet[int]) -> None:
        """Delete all others."""
        for each in sorted(self._saved - updates):
            self._checkpoints.delete(series_name(each))
        self._saved &= updates
