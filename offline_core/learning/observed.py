"""Statistics of observations, which normalise them."""

from __future__ import annotations

from offline_core.episodes import columns
from offline_core.learning.data_loader import DataLoader
from offline_core.learning.learner import Learner
from offline_core.learning.replay.data_loader import NUMBER
from offline_core.learning.steps import BatchSpec


def take_statistics(learner: Learner, loader: DataLoader) -> None:
    """Of all steps once; of a replay buffer, of those that it holds at some time in the first epoch."""
    seen = -1
    for steps in loader.windows(0):
        steps.to(learner.device)
        rows = steps.rows
        if (numbers := steps.columns.get(NUMBER)) is not None:
            rows, seen = rows[numbers[rows] > seen], int(numbers[-1])
        for indices in rows.split(65_536):
            batch = learner.nested(steps.batch(indices, BatchSpec((columns.OBS,))))
            learner.algorithm.policy.encoder.update_statistics(batch[columns.OBS])
