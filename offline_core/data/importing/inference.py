"""Infer undeclared spaces from the types and values of the data, and say where they may be wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from offline_core.data.datasets.statistics import ColumnStatistics, Statistics
from offline_core.data.episodes import Episode, columns
from offline_core.data.episodes.action_masks import ACTION_MASK, is_masked
from offline_core.data.episodes.nested import PATH_SEPARATOR, Nested
from offline_core.data.episodes.spaces import StoredSpaces
from offline_core.data.importing.stray_actions import ActionCounts

MAX_CHOICES = 65_536
"""Whole numbers that differ by more are amounts and not choices."""


def inferred_spaces(
    declared: StoredSpaces, first: Episode, statistics: Statistics, actions: ActionCounts
) -> tuple[StoredSpaces, list[str]]:
    """(the declared spaces; where there is none, that of the first episode, or what its types and the values say; notes).

    Arguments:
        actions: how often each action occurs, for a note on those that do not.
    """
    own, known = (first.observation_space, first.action_space), statistics.columns or {}
    trees = ((columns.OBS, first.observations), (columns.ACTIONS, first.actions))
    inferred = []
    for space, said, (name, tree) in zip(declared, own, trees, strict=True):
        stated = said if space is None else space  # whether a space is true depends on its length
        inferred.append(inferred_space(tree, name, known) if stated is None else stated)
    is_inferred = declared[1] is None and own[1] is None
    spaces = _as_masks_say(inferred[0], inferred[1], inferred=is_inferred)
    notes = _notes(spaces, statistics, is_inferred=is_inferred)
    if not is_inferred or is_masked(spaces[0]):
        return spaces, notes
    return spaces, notes + actions.notes_on_unused(spaces[1])


def _notes(spaces: StoredSpaces, statistics: Statistics, *, is_inferred: bool) -> list[str]:
    """Note each space that cannot be inferred, and first actions that no row has, as with ids that begin at 1."""
    notes = [
        f"The {what} space cannot be told, as for text, and nothing learns from it: give its values numbers by columns.encode, "
        f"or map numbers to {name}."
        for what, name, space in zip(("observation", "action"), (columns.OBS, columns.ACTIONS), spaces, strict=True)
        if space is None
    ]
    return notes + (_notes_on_unused(spaces[1], statistics) if is_inferred else [])


def _notes_on_unused(space: gym.Space[Any] | None, statistics: Statistics) -> list[str]:
    known = (statistics.columns or {}).get(columns.ACTIONS)
    if known is None or not isinstance(space, gym.spaces.Discrete | gym.spaces.MultiDiscrete):
        return []
    least, most = ([int(number or 0) for number in numbers] for numbers in (known.min, known.max))
    at = next((number for number, low in enumerate(least) if low > 0), None)
    if at is None or (isinstance(space, gym.spaces.Discrete) and int(space.start) != 0):
        return []
    low, high = least[at], most[at]
    of = f"{columns.ACTIONS}[{at}]" if len(least) > 1 else columns.ACTIONS
    unused = "a choice 0" if low == 1 else f"choices 0 to {low - 1:,}"
    if len(least) > 1:
        remedy = "Declare action_space if there are no such choices."
    else:
        remedy = (
            f"If ids begin at {low}, declare action_space: {{space: discrete, n: {high - low + 1}, start: {low}}}; or give "
            "each value a code by columns.encode, with form: index."
        )
    return [f"The action space {space} has {unused} that no row has: {of} are {low} to {high}. {remedy}"]


def _as_masks_say(observation: Any, action: Any, *, inferred: bool) -> StoredSpaces:
    """The spaces, where masks of actions show what the actions taken do not: how many there are."""
    if not is_masked(observation):
        return observation, action
    size = math.prod(observation[ACTION_MASK].shape or ())
    if inferred and isinstance(action, gym.spaces.Discrete) and int(action.start) == 0 and int(action.n) < size:
        action = gym.spaces.Discrete(size)
    return observation, action


def inferred_space(template: Nested, name: str, statistics: Mapping[str, ColumnStatistics]) -> gym.Space[Any] | None:
    """The space that column `name` is from, None if it cannot be told (text).

    Real numbers are an unbounded Box; whole ones Discrete or MultiDiscrete, as many as the largest one says; images Box
    from 0 to 255.

    Arguments:
        template: arrays with the column's structure, dtypes and shapes.
        statistics: by the names of `nested.flatten`.
    """
    if isinstance(template, dict):
        parts = {key: inferred_space(child, f"{name}{PATH_SEPARATOR}{key}", statistics) for key, child in template.items()}
        if isinstance(parts.get(ACTION_MASK), gym.spaces.MultiDiscrete) and name == columns.OBS:
            parts[ACTION_MASK] = gym.spaces.MultiBinary(template[ACTION_MASK].shape[1])  # also of actions never allowed
        return gym.spaces.Dict(parts) if None not in parts.values() else None  # type: ignore[arg-type]
    if isinstance(template, tuple):
        children = [inferred_space(child, f"{name}{PATH_SEPARATOR}{i}", statistics) for i, child in enumerate(template)]
        return gym.spaces.Tuple(children) if None not in children else None  # type: ignore[arg-type]
    shape, dtype = template.shape[1:], template.dtype
    match dtype.kind:
        case "f":
            return gym.spaces.Box(-np.inf, np.inf, shape, dtype.type)
        case "b":
            return gym.spaces.MultiBinary(shape) if shape else gym.spaces.Discrete(2)
        case "i" | "u" if name in statistics:
            return _whole_numbers(shape, dtype, statistics[name])
    return None


def _whole_numbers(shape: tuple[int, ...], dtype: np.dtype, statistics: ColumnStatistics) -> gym.Space[Any] | None:
    low, high = ([int(number or 0) for number in numbers] for numbers in (statistics.min, statistics.max))
    unbounded = gym.spaces.Box(int(np.iinfo(dtype).min), int(np.iinfo(dtype).max), shape, dtype.type)
    if dtype == np.uint8 and len(shape) >= 2:
        return gym.spaces.Box(0, 255, shape, np.uint8)
    if max(high) - min(0, *low) >= MAX_CHOICES:
        return unbounded
    if not shape:
        first = min(0, low[0])
        return gym.spaces.Discrete(high[0] - first + 1, start=first)
    if min(low) >= 0 and len(high) == int(np.prod(shape)):
        return gym.spaces.MultiDiscrete(np.array(high).reshape(shape) + 1)
    return unbounded
