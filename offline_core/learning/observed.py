"""Statistics of observations, which normalise them."""

from __future__ import annotations

import torch

from offline_core.data.episodes import columns
from offline_core.learning.data_loader import DataLoader
from offline_core.learning.learner import Learner
from offline_core.learning.replay.data_loader import NUMBER
from offline_core.learning.steps import BatchSpec
from offline_core.learning.together import gathered


def take_statistics(learner: Learner, loader: DataLoader) -> None:
    """Of all steps of all learners once; of a replay buffer, of those that it holds at some time in the first epoch."""
    seen, encoder = -1, learner.algorithm.policy.encoder
    for steps in loader.windows(0):
        steps.to(learner.device)
        rows = steps.rows
        if (numbers := steps.columns.get(NUMBER)) is not None:
            rows, seen = rows[numbers[rows] > seen], int(numbers[-1])
        for indices in rows.split(65_536) if len(rows) else ():
            batch = learner.nested(steps.batch(indices, BatchSpec((columns.OBS,))))
            encoder.update_statistics(batch[columns.OBS])
    if learner.world > 1 and learner.drawing is None:  # all learners hold the whole replay buffer
        own = torch.cat([encoder.count[None], encoder.mean, encoder.variance])
        encoder.count.zero_()
        for found in gathered(own):
            if count := found[0]:
                mean, variance = found[1:].chunk(2)
                encoder.merge_statistics(count, mean, variance)
