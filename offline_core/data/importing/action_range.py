"""Whether recorded actions are in the units of their environment, found from the steps themselves.

RLlib records what its policy samples: for a Box, normalised to -1 to 1 by default, and not clipped. The environment got the
sample scaled and clipped. So what follows a step depends on the recorded action only as far as the range reaches that it was
recorded in: beyond -1 and 1, or beyond the bounds of the space, more of it changes nothing. The two are compared by
regression of what follows (observations and rewards) on observations and clipped actions, with as many coefficients in both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np
import pyarrow as pa

from offline_core.data.episodes import Episode, columns, nested
from offline_core.data.episodes.arrow import read_column
from offline_core.data.episodes.nested import Nested
from offline_core.data.importing.action_units import ROUNDING, Range
from offline_core.errors import ConfigError

SAMPLED_STEPS = 4096
"""How many steps are compared, the first ones."""
EVIDENCE = 20.0
"""By how much at least the log-likelihood of the better range is larger, in each half of the steps."""
MAX_NUMBERS = 32
"""Observations and actions of more numbers are not compared."""
NORMALIZED: Range = (-1.0, 1.0)

DECLARE = (
    "Declare recorded_action_range: [-1, 1] if they are normalised, as RLlib's are unless normalize_actions was false; the "
    "bounds of the action space if they are in the units of the environment. Beyond it they are clipped."
)


class SampledSteps(NamedTuple):
    """N steps as they were recorded."""

    actions: np.ndarray
    """(N, components)"""
    obs: np.ndarray
    """(N, numbers), or of the first `SAMPLED_STEPS`"""
    follows: np.ndarray
    """(N, numbers), or as many rows as `obs`: how the observation changes, if that is known, and the reward."""
    by_rllib: bool
    """RLlib recorded them: a column `weights_seq_no` exists."""


def infer_range(batches: Iterable[SampledSteps | None], space: gym.Space[Any] | None) -> tuple[Range | None, str | None]:
    """`told_range` of the first steps of a source; (None, None) if their actions are no vectors of real numbers."""
    steps = first_steps(batches, space)
    return (None, None) if steps is None else told_range(steps, space)


def told_range(steps: SampledSteps, space: gym.Space[Any] | None) -> tuple[Range | None, str | None]:
    """(the range that actions were recorded in, None: they stay as they are; a note on it, or None).

    Raises:
        ConfigError: RLlib recorded them, and their units are not known, or the bounds to scale them to are not.
    """
    if not is_in_doubt(steps, space):
        return None, None
    bounds = _bounds(space)
    beyond = 0.0 if bounds is None else _share_outside(steps.actions, bounds)
    scale = "units" if bounds is not None and _is_normalized(bounds) else better_range(steps, bounds)
    prefix = (
        "" if not beyond else f"{100 * beyond:.1f} % of the first {len(steps.actions):,} actions lie outside the action space. "
    )
    if scale == "normalized" and bounds is not None:
        reason = "What follows a step depends on its action as far as -1 and 1, and no further"
        done = "so actions are taken as normalised by RLlib, scaled to the bounds of the action space, and clipped"
        return NORMALIZED, f"{prefix}{reason}; {done}. Declare recorded_action_range if that is wrong."
    if not steps.by_rllib:
        return None, f"{prefix}They are imported as they are. {DECLARE}"
    if scale == "units" and bounds is not None:
        assert isinstance(space, gym.spaces.Box)
        prefix += "RLlib records samples before they are clipped; actions are clipped to the action space."
        return (space.low, space.high), prefix if beyond else None
    if scale == "units":
        return None, "Actions have an effect beyond -1 and 1, and are taken as in the units of the environment."
    if scale == "normalized":
        raise ConfigError(
            "RLlib recorded these actions normalised to [-1, 1]: beyond that they change nothing that follows. The bounds they "
            "are to be scaled to are not known: declare them by environment.id or by action_space."
        )
    if bounds is None:
        raise ConfigError(
            "RLlib recorded these actions, and what follows them does not show whether they are normalised to [-1, 1]. "
            f"Declare environment.id or action_space. {DECLARE}"
        )
    raise ConfigError(f"{prefix}RLlib recorded these actions, and what follows them does not show their units. {DECLARE}")


def is_in_doubt(steps: SampledSteps, space: gym.Space[Any] | None) -> bool:
    """Whether RLlib recorded them, or some lie outside the space."""
    bounds = _bounds(space)
    return steps.by_rllib or (bounds is not None and _share_outside(steps.actions, bounds) > 0)


def better_range(steps: SampledSteps, bounds: Range | None) -> Literal["normalized", "units"] | None:
    """Which range explains what follows; `units`: the bounds, or none if there are no bounds. None: neither clearly does."""
    if max(steps.obs.shape[1], steps.actions.shape[1]) > MAX_NUMBERS:
        return None
    wide = (-np.inf, np.inf) if bounds is None else bounds
    evidence = []
    for half in np.array_split(np.arange(len(steps.actions)), 2):
        actions, obs, follows = steps.actions[half], steps.obs[half], steps.follows[half]
        lost = [_unexplained(np.clip(actions, *limits), obs, follows) for limits in (NORMALIZED, wide)]
        if lost[0] is None or lost[1] is None:
            return None
        gained = len(half) / 2 * np.log(lost[1] / lost[0])
        evidence.append(gained[np.argmax(np.abs(gained))])
    if min(evidence) > EVIDENCE:
        return "normalized"
    return "units" if max(evidence) < -EVIDENCE else None


def _unexplained(actions: np.ndarray, obs: np.ndarray, follows: np.ndarray) -> np.ndarray | None:
    """(outputs,) share of the variance of what follows that a regression leaves; None if there are too few steps for one."""
    obs, follows = _standard(obs), _standard(follows)
    ones = np.ones((len(obs), 1))
    with_obs = np.concatenate([ones, obs], axis=1)
    effects = (actions[:, :, None] * with_obs[:, None, :]).reshape(len(obs), -1)
    features = np.concatenate([with_obs, obs**2, effects, actions**2], axis=1)
    if len(features) < 4 * features.shape[1] or not follows.shape[1]:
        return None
    residuals = follows - features @ np.linalg.lstsq(features, follows, rcond=None)[0]
    return (residuals**2).mean(axis=0) + 1e-10  # type: ignore[no-any-return]


def _standard(values: np.ndarray) -> np.ndarray:
    """Columns with a variance of one; those that do not vary are left out."""
    values = values[:, values.std(axis=0) > 0].astype(np.float64)
    return (values - values.mean(axis=0)) / values.std(axis=0)  # type: ignore[no-any-return]


def _bounds(space: gym.Space[Any] | None) -> Range | None:
    """Flat ones, of a bounded Box."""
    if not isinstance(space, gym.spaces.Box) or not space.is_bounded():
        return None
    return space.low.reshape(-1).astype(np.float64), space.high.reshape(-1).astype(np.float64)


def _is_normalized(bounds: Range) -> bool:
    return bool((bounds[0] == -1).all() and (bounds[1] == 1).all())  # type: ignore[union-attr]


def _share_outside(actions: np.ndarray, bounds: Range) -> float:
    """Return the share of the steps whose action lies outside the bounds."""
    rounding = ROUNDING * (np.asarray(bounds[1]) - bounds[0])
    return float(((actions < bounds[0] - rounding) | (actions > bounds[1] + rounding)).any(axis=1).mean())


def steps_of_table(table: pa.Table) -> SampledSteps | None:
    """The sampled steps of a canonical table; None if its actions are no vectors of real numbers."""
    names, first = table.column_names, table.slice(0, SAMPLED_STEPS)
    new_obs = read_column(first, columns.NEW_OBS) if columns.NEW_OBS in names else None
    actions = read_column(table, columns.ACTIONS)  # all, for one may lie outside the space
    obs, rewards = (read_column(first, name) for name in (columns.OBS, columns.REWARDS))
    return _steps(actions, obs, new_obs, rewards, by_rllib=columns.WEIGHTS_SEQ_NO in names)


def steps_of_episode(episode: Episode) -> SampledSteps | None:
    """The sampled steps of an episode; None if its actions are no vectors of real numbers."""
    obs, new_obs = episode.get_observations(slice(0, -1)), episode.get_observations(slice(1, None))
    by_rllib = columns.WEIGHTS_SEQ_NO in episode.extras
    return _steps(episode.get_actions(), obs, new_obs, episode.get_rewards(), by_rllib=by_rllib)


def first_steps(batches: Iterable[SampledSteps | None], space: gym.Space[Any] | None) -> SampledSteps | None:
    """Return up to `SAMPLED_STEPS` steps of one shape, and stop at the first batch that leaves no doubt about the range."""
    held: list[SampledSteps] = []
    for steps in batches:
        if steps is None or (held and _widths(steps) != _widths(held[0])):
            break
        held.append(steps)
        if not is_in_doubt(steps, space) or sum(len(batch.actions) for batch in held) >= SAMPLED_STEPS:
            break
    if not held:
        return None
    actions, obs, follows = (np.concatenate([batch[i] for batch in held])[:SAMPLED_STEPS] for i in range(3))
    return SampledSteps(actions, obs, follows, any(batch.by_rllib for batch in held))


def _steps(actions: Nested, obs: Nested, new_obs: Nested | None, rewards: Nested, *, by_rllib: bool) -> SampledSteps | None:
    if not isinstance(actions, np.ndarray) or actions.dtype.kind != "f" or not isinstance(rewards, np.ndarray):
        return None
    now = _flat(obs)
    changes = [] if new_obs is None else [_flat(new_obs) - now]
    follows = np.concatenate([*changes, rewards.reshape(len(rewards), 1)], axis=1)
    return SampledSteps(actions.reshape(len(actions), -1).astype(np.float64), now, follows, by_rllib)


def _widths(steps: SampledSteps) -> list[int]:
    return [array.shape[1] for array in steps[:3]]


def _flat(tree: Nested) -> np.ndarray:
    """(N, numbers) float64; of more than can be compared, one number more."""
    leaves = [leaf.reshape(len(leaf), -1)[:, : MAX_NUMBERS + 1] for leaf in nested.leaves(tree) if leaf.dtype.kind in "biuf"]
    count = len(nested.leaves(tree)[0])
    return np.concatenate([np.zeros((count, 0)), *leaves], axis=1)[:, : MAX_NUMBERS + 1].astype(np.float64)
