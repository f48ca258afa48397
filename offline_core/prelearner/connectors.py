"""Connectors: small functions from step columns to step columns, composed into what a learner is fed with.

Step columns are a dict from column name to nested arrays that share a leading axis of steps, in the order of the episodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np

from offline_core.episodes import columns, nested
from offline_core.episodes.nested import Nested
from offline_core.errors import NonFiniteError, SpaceError

StepColumns: TypeAlias = dict[str, Nested]
Connector: TypeAlias = Callable[[StepColumns], StepColumns]


class CheckSpaces:
    """Refuses observations and actions that do not have the shape of their space, or values outside a discrete one."""

    def __init__(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:
        self.spaces = {columns.OBS: observation_space, columns.NEW_OBS: observation_space, columns.ACTIONS: action_space}

    def __call__(self, steps: StepColumns) -> StepColumns:
        for name, space in self.spaces.items():
            if name in steps:
                _check(name, steps[name], space)
        return steps


class CheckFinite:
    """Refuses NaN and infinite numbers in any column."""

    def __call__(self, steps: StepColumns) -> StepColumns:
        for name, tree in steps.items():
            for path, array in nested.flatten(tree, name).items():
                if array.dtype.kind == "f" and not np.isfinite(array).all():
                    bad = len(np.unique(np.argwhere(~np.isfinite(array))[:, 0]))
                    raise NonFiniteError(
                        f"Column {path} is NaN or infinite in {bad} of {len(array)} steps that were read together. "
                        "Prune those episodes first, or mend the source."
                    )
        return steps


def _check(name: str, tree: Nested, space: gym.Space[Any]) -> None:
    match space:
        case gym.spaces.Dict() if isinstance(tree, dict) and tree.keys() == space.spaces.keys():
            for key, child in space.spaces.items():
                _check(f"{name}/{key}", tree[key], child)
            return
        case gym.spaces.Tuple() if isinstance(tree, tuple) and len(tree) == len(space.spaces):
            for i, child in enumerate(space.spaces):
                _check(f"{name}/{i}", tree[i], child)
            return
    if not isinstance(tree, np.ndarray) or tree.shape[1:] != space.shape:
        shape = tree.shape[1:] if isinstance(tree, np.ndarray) else type(tree).__name__
        raise SpaceError(
            f"Column {name} has shape {shape} a step; the space {space} has {space.shape}. Are two datasets mixed?"
        )
    bounds = _bounds(space)
    if bounds is not None and len(tree):
        low, high = tree.min(axis=0), tree.max(axis=0)
        if (low < bounds[0]).any() or (high > bounds[1]).any():
            raise SpaceError(f"Column {name} has values from {low} to {high}, outside {space}.")


def _bounds(space: gym.Space[Any]) -> tuple[Any, Any] | None:
    """The smallest and the largest value, of each component, where there are but a few; Boxes are often guessed."""
    match space:
        case gym.spaces.Discrete():
            return int(space.start), int(space.start) + int(space.n) - 1
        case gym.spaces.MultiDiscrete():
            start = space.start.astype(np.int64)
            return start, start + space.nvec.astype(np.int64) - 1
        case gym.spaces.MultiBinary():
            return 0, 1
    return None
