"""The first steps of a source, as `action_range` compares them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import gymnasium as gym
import numpy as np
import pyarrow as pa

from offline_core.conversion.action_range import MAX_NUMBERS, SAMPLED_STEPS, Steps, is_in_doubt
from offline_core.episodes import Episode, columns, nested
from offline_core.episodes.arrow import read_column
from offline_core.episodes.nested import Nested


def steps_of_table(table: pa.Table) -> Steps | None:
    """Of a canonical table; None if its actions are no vectors of real numbers."""
    names = table.column_names
    new_obs = read_column(table, columns.NEW_OBS) if columns.NEW_OBS in names else None
    actions, obs, rewards = (read_column(table, name) for name in (columns.ACTIONS, columns.OBS, columns.REWARDS))
    return _steps(actions, obs, new_obs, rewards, by_rllib=columns.WEIGHTS_SEQ_NO in names)


def steps_of_episode(episode: Episode) -> Steps | None:
    """Likewise."""
    obs, new_obs = episode.get_observations(slice(0, -1)), episode.get_observations(slice(1, None))
    by_rllib = columns.WEIGHTS_SEQ_NO in episode.extras
    return _steps(episode.get_actions(), obs, new_obs, episode.get_rewards(), by_rllib=by_rllib)


def first_steps(found: Iterable[Steps | None], space: gym.Space[Any] | None) -> Steps | None:
    """Up to `SAMPLED_STEPS` of one shape, and no more than it takes to see that there is no doubt about them."""
    held: list[Steps] = []
    for steps in found:
        if steps is None or (held and _widths(steps) != _widths(held[0])):
            break
        held.append(steps)
        if not is_in_doubt(steps, space) or sum(len(each.actions) for each in held) >= SAMPLED_STEPS:
            break
    if not held:
        return None
    actions, obs, follows = (np.concatenate([each[i] for each in held])[:SAMPLED_STEPS] for i in range(3))
    return Steps(actions, obs, follows, any(each.by_rllib for each in held))


def _steps(actions: Nested, obs: Nested, new_obs: Nested | None, rewards: Nested, *, by_rllib: bool) -> Steps | None:
    if not isinstance(actions, np.ndarray) or actions.dtype.kind != "f" or not isinstance(rewards, np.ndarray):
        return None
    now = _flat(obs)
    changes = [] if new_obs is None else [_flat(new_obs) - now]
    follows = np.concatenate([*changes, rewards.reshape(len(rewards), 1)], axis=1)
    return Steps(actions.reshape(len(actions), -1).astype(np.float64), now, follows, by_rllib)


def _widths(steps: Steps) -> list[int]:
    return [array.shape[1] for array in steps[:3]]


def _flat(tree: Nested) -> np.ndarray:
    """(N, numbers) float64; of more than can be compared, one number more."""
    leaves = [leaf.reshape(len(leaf), -1)[:, : MAX_NUMBERS + 1] for leaf in nested.leaves(tree) if leaf.dtype.kind in "biuf"]
    count = len(nested.leaves(tree)[0])
    return np.concatenate([np.zeros((count, 0)), *leaves], axis=1)[:, : MAX_NUMBERS + 1].astype(np.float64)
