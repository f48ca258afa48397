"""What a filter of observations is made of."""

from __future__ import annotations

from offline_core.episodes import columns
from offline_core.learning.feed import Feed
from offline_core.learning.learner import Learner
from offline_core.learning.replay.feed import NUMBER
from offline_core.learning.steps import Reading


def take_statistics(learner: Learner, feed: Feed) -> None:
    """Of all steps once; of a replay buffer, of those that it holds at some time in the first epoch."""
    seen = -1
    for steps in feed.chunks(0):
        steps.to(learner.device)
        rows = steps.rows
        if (numbers := steps.columns.get(NUMBER)) is not None:
            rows, seen = rows[numbers[rows] > seen], int(numbers[-1])
        for units in rows.split(65_536):
            batch = learner.nested(steps.batch(units, Reading((columns.OBS,))))
            learner.algorithm.policy.encoder.update_statistics(batch[columns.OBS])
