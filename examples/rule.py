"""Add a rule to the quality gate: see all steps, some thousand at a time, then say what was found.

offline check runs/recording -s 'rules=[{path: examples.rule:Jumps, arguments: {limit: 1.0}}]'
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

import offline_core as offline


class Jumps:
    """Steps in which a number of the observation changes by more than `limit`: a sensor that slipped, or lost rows."""

    def __init__(self, *, limit: float) -> None:
        self.limit = limit
        self.tally = offline.Tally()

    def look(self, steps: offline.StepBatch) -> None:
        change = np.abs(steps.columns["new_obs"] - steps.columns["obs"])
        self.tally.steps(steps, (change > self.limit).any(axis=1))

    def finding(self, statistics: Mapping[str, Any]) -> offline.Finding:
        message = f"steps change the observation by more than {self.limit:g}"
        return self.tally.finding("jumps", "warn", message, "Look at these steps where they were recorded.")
