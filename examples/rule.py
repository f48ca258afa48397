"""A rule of your own for the quality gate: it looks at all steps, some thousand at a time, then says what it found.

offline check runs/recording -s 'rules=[{path: examples.rule:Jumps, arguments: {limit: 1.0}}]'
"""

from collections.abc import Mapping

import numpy as np

from offline_core.quality.result import Finding
from offline_core.quality.rule import Tally
from offline_core.quality.steps import StepBatch
from offline_core.storage.statistics import ColumnStatistics


class Jumps:
    """Steps in which a number of the observation changes by more than `limit`: a sensor that slipped, rows that are lost."""

    def __init__(self, *, limit: float) -> None:
        self.limit = limit
        self.tally = Tally()

    def look(self, steps: StepBatch) -> None:
        change = np.abs(steps.columns["new_obs"] - steps.columns["obs"])
        self.tally.steps(steps, (change > self.limit).any(axis=1))

    def finding(self, statistics: Mapping[str, ColumnStatistics]) -> Finding:
        message = f"steps change the observation by more than {self.limit:g}"
        return self.tally.finding("jumps", "warn", message, "Look at these steps where they were recorded.")
