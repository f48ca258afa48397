"""Convert rows of a LeRobot dataset to arrays: observations, actions, rewards, flags."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
import pyarrow as pa

from offline_core.data.episodes import columns, nested
from offline_core.data.episodes.nested import Nested
from offline_core.data.formats.packed import read_foreign_column
from offline_core.errors import SchemaError

REWARD, DONE, SUCCESS = "next.reward", "next.done", "next.success"
TERMINATED, TRUNCATED = "next.terminated", "next.truncated"
_OBSERVATION, _STATE, _ACTION, _EXTRA = "observation", "observation.state", "action", "extra."
_NUMBERS = ("timestamp", "frame_index", "episode_index", "index")
TASK = "task_index"
_ENDS = (DONE, TERMINATED, TRUNCATED)

Spaces: TypeAlias = tuple[gym.Space[Any] | None, gym.Space[Any] | None]


@dataclass(frozen=True, slots=True)
class Frames:
    """N steps of whole episodes, one after the other."""

    episode: np.ndarray
    """(N,) the number of each step's episode."""
    t: np.ndarray
    """(N,)"""
    observations: Nested
    """(N, …)"""
    actions: Nested
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    extras: dict[str, np.ndarray]

    @classmethod
    def of(cls, rows: pa.Table, spaces: Spaces, *, several_tasks: bool = False) -> Frames:
        """From rows of a file, and the spaces in its metadata if this package wrote it.

        Raises:
            DataError: a column is missing, or cannot be read.
        """
        arrays = {name: read_foreign_column(rows, name) for name in rows.column_names}
        if missing := {"episode_index", "frame_index"} - arrays.keys():
            raise SchemaError(f"There is no feature {', '.join(sorted(missing))}, which every LeRobot dataset has.")
        parts = [name for name in arrays if name.split(".")[0] in (_OBSERVATION, _ACTION)]
        others = {*parts, *_NUMBERS, *_ENDS, REWARD} | ({TASK} if not several_tasks else set())
        terminated, truncated = _ends(arrays)
        return cls(
            episode=arrays["episode_index"],
            t=arrays["frame_index"],
            observations=observations_of(arrays, spaces),
            actions=_tree(arrays, _ACTION, _ACTION, spaces[1]),
            rewards=arrays.get(REWARD, np.zeros(rows.num_rows, np.float32)),
            terminated=terminated,
            truncated=truncated,
            extras={_extra(name): array for name, array in arrays.items() if name not in others},
        )

    @property
    def starts(self) -> np.ndarray:
        """(E,) the first row of each episode."""
        return np.flatnonzero(np.diff(self.episode, prepend=self.episode[:1] - 1))


def observations_of(arrays: dict[str, np.ndarray], spaces: Spaces) -> Nested:
    """The observation features as one tree.

    Raises:
        SchemaError: there are none.
    """
    return _tree(arrays, _OBSERVATION, _STATE, spaces[0])


def _extra(name: str) -> str:
    own = name.removeprefix(_EXTRA)
    return name if own in columns.STEP_COLUMNS else own


def _ends(arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(terminated, truncated), (N,) each; with only a done flag, success (if recorded) means terminated."""
    numbers = arrays["episode_index"]
    is_last = np.append(numbers[1:] != numbers[:-1], True)
    done = arrays[DONE].astype(bool) if DONE in arrays else None
    truncated = arrays[TRUNCATED].astype(bool) if TRUNCATED in arrays else None
    if TERMINATED in arrays:
        terminated = arrays[TERMINATED].astype(bool)
        return terminated, is_last & ~terminated if truncated is None else truncated
    if truncated is not None:
        return (is_last if done is None else done) & ~truncated, truncated
    if done is None:
        return np.zeros(len(numbers), bool), is_last
    if SUCCESS in arrays:
        return done & arrays[SUCCESS].astype(bool), done & ~arrays[SUCCESS].astype(bool)
    return done, np.zeros(len(numbers), bool)


def _tree(arrays: dict[str, np.ndarray], prefix: str, alone: str, space: gym.Space[Any] | None) -> Nested:
    """The features of an observation or action as one tree, structured by the space if known, else by their names."""
    if space is not None:
        leaves = nested.space_leaves(space, prefix)
        stored = {path: alone if path == prefix else path.replace(nested.PATH_SEPARATOR, ".") for path in leaves}
        if missing := sorted(set(stored.values()) - arrays.keys()):
            raise SchemaError(f"There is no feature {', '.join(missing)}, which the space {space} needs.")
        return nested.unflatten({path: _shaped(arrays[stored[path]], leaf) for path, leaf in leaves.items()}, prefix, space)
    found = {name: array for name, array in arrays.items() if name == prefix or name.startswith(f"{prefix}.")}
    if not found:
        raise SchemaError(f"There is no feature {prefix} except cameras; it has {', '.join(arrays)}.")
    if len(found) == 1 and alone in found:
        return found[alone]
    return {name.removeprefix(prefix).removeprefix(".") or prefix: array for name, array in found.items()}


def _shaped(array: np.ndarray, space: gym.Space[Any]) -> np.ndarray:
    """Restore the shape: LeRobot writes a vector of one number as a number."""
    shape = space.shape or ()
    return array.reshape(len(array), *shape) if math.prod(array.shape[1:]) == math.prod(shape) else array
