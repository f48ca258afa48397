"""Connectors: small functions from columns to columns, composed into what a learner is fed with."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np

from offline_core.episodes import columns, nested
from offline_core.episodes.nested import Nested
from offline_core.errors import NonFiniteError, SchemaError, SpaceError
from offline_core.prelearner.layout import STARTS, Columns

Connector: TypeAlias = Callable[[Columns], Columns]
"""Takes and gives columns of whole episodes (see `offline_core.prelearner.layout`), without changing the arrays it is given.

One of the user's own may say more about itself, by attributes of the class or function:

    reads        names of columns that it needs beside those of the algorithm
    adds         names of columns that it makes, which the dataset need not have
    looks_ahead  True: episodes have a row more, for the observation after the last step
    spaces       method (observation space, action space) → (observation space, action space): what becomes of them
    fingerprint  text that stands for what it depends on beside local files that its arguments name

What it makes may depend on nothing but its arguments and the columns: it is called again for the same steps in each epoch
of a stream, when a run that was killed goes on, and in other processes.
"""


def each_episode(connector: Connector) -> Connector:
    """Makes a connector of one that is given a single episode at a time."""

    @functools.wraps(connector)
    def run(steps: Columns, **arguments: Any) -> Columns:
        bounds = [*np.flatnonzero(steps[STARTS]), len(steps[STARTS])]
        made = [
            connector({name: _cut(tree, start, end) for name, tree in steps.items()}, **arguments)
            for start, end in itertools.pairwise(bounds)
        ]
        if any(part.keys() != made[0].keys() for part in made):
            raise SchemaError("some episodes came out with other columns than the first one")
        return {name: nested.concatenate([part[name] for part in made]) for name in made[0]} if made else steps

    return run


def _cut(tree: Nested, start: int, end: int) -> Nested:
    return nested.map_leaves(lambda leaf: leaf[start:end], tree)


class CheckSpaces:
    """Refuses observations and actions that do not have the shape of their space, or values outside a discrete one."""

    def __init__(self, observation_space: gym.Space[Any], action_space: gym.Space[Any]) -> None:
        self.spaces = {columns.OBS: observation_space, columns.NEW_OBS: observation_space, columns.ACTIONS: action_space}

    def __call__(self, steps: Columns) -> Columns:
        for name, space in self.spaces.items():
            if name in steps:
                _check(name, steps[name], space)
        return steps


class CheckFinite:
    """Refuses NaN and infinite numbers in any column."""

    def __call__(self, steps: Columns) -> Columns:
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
    if space.dtype is not None and space.dtype.kind in "biu" and tree.dtype.kind not in "biu":
        raise SpaceError(f"Column {name} is of {tree.dtype}; the space {space} has whole numbers, of {space.dtype}.")
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
