"""Steps of several episodes, one column at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from offline_core.data.episodes import columns, nested
from offline_core.data.episodes.episode import Episode
from offline_core.data.episodes.nested import Nested

STEP_NAMES = (
    columns.EPS_ID,
    columns.T,
    columns.OBS,
    columns.ACTIONS,
    columns.REWARDS,
    columns.NEW_OBS,
    columns.TERMINATEDS,
    columns.TRUNCATEDS,
)
"""Columns that every episode has; its extras come on top."""


def step_column(episodes: Sequence[Episode], name: str) -> Nested:
    """Column `name` of the step table of `episodes` as arrays, (steps of all, …).

    Raises:
        KeyError: an episode has no such column.
        ValueError: the episodes do not agree on its structure or shape.
    """
    return nested.concatenate([_of(episode, name) for episode in episodes])


def _of(episode: Episode, name: str) -> Nested:
    steps = len(episode)
    match name:
        case columns.EPS_ID:
            return np.full(steps, episode.eps_id)
        case columns.T:
            return np.arange(episode.t_started, episode.t)
        case columns.OBS:
            return episode.get_observations(slice(0, steps))
        case columns.NEW_OBS:
            return episode.get_observations(slice(1, steps + 1))
        case columns.ACTIONS:
            return episode.get_actions()
        case columns.REWARDS:
            return episode.get_rewards()
        case columns.TERMINATEDS | columns.TRUNCATEDS:
            ends = np.zeros(steps, bool)
            ends[-1:] = episode.terminated if name == columns.TERMINATEDS else episode.truncated
            return ends
        case _:
            return episode.get_extra(name)
