"""The numbers of a step as columns: one by one of vectors, mean and spread of anything larger."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import gymnasium as gym
import numpy as np

from offline_core.data.episodes import columns
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.data.inputs.number_names import number_names
from offline_core.data.quality.steps import StepBatch

MOST_NUMBERS = 64
"""Most numbers of a column that are looked at one by one; of a larger one, such as an image, its mean and spread are."""
MOST_ACTIONS = 32
"""Most actions of a Discrete space that are told apart."""
SECONDS = "time in seconds"
"""Name of the numbers of column `time` where that is of nanoseconds since 1970."""
COMPARED = (columns.OBS, columns.ACTIONS, columns.REWARDS, columns.TIME)
"""Columns whose numbers are looked at: what no policy sees or learns from makes no episode an outlier."""


@dataclass(frozen=True, slots=True)
class StepNumbers:
    """Numbers of N steps."""

    names: Sequence[str]
    """C names, by the mapping of the import or as `obs[0]`."""
    columns: Sequence[str]
    """C columns that the numbers are of: `obs` of `obs/position[2]`."""
    values: np.ndarray
    """(N, C) float64"""

    def of(self, *roots: str) -> np.ndarray:
        """(N, …) numbers of the columns with these names."""
        return self.values[:, [column in roots for column in self.columns]]


def numbers_of(batch: StepBatch, made_of: InputColumns | None = None) -> StepNumbers:
    """What is looked at of each step: observations, actions (those of a list as shares), rewards and times.

    Arguments:
        made_of: what the observations are made of, whose numbers have the names of the mapping, and what actions are called.
    """
    labels = None if made_of is None else made_of.labels
    if made_of is not None and {*made_of.obs} & batch.columns.keys():
        made_of = None  # another column has that name
    names: list[str] = []
    roots: list[str] = []
    parts: list[np.ndarray] = []
    for path, leaf in batch.leaves(*COMPARED).items():
        if leaf.dtype.kind in "fiub":
            space = batch.action_space if path == columns.ACTIONS else None
            for name, values in _numbers(path, leaf, space, made_of, labels):
                names.append(name)
                roots.append(path.partition("/")[0])
                parts.append(values)
    return StepNumbers(names, roots, np.column_stack(parts) if parts else np.zeros((len(batch), 0)))


def next_observations(batch: StepBatch) -> np.ndarray:
    """(N, …) float64 numbers of the observations after the steps, in the order of `numbers_of`."""
    paths = [path for path, leaf in batch.leaves(columns.OBS).items() if leaf.dtype.kind in "fiub"]
    following = {path: batch.columns[columns.NEW_OBS + path.removeprefix(columns.OBS)] for path in paths}
    parts = [values for path, leaf in following.items() for _, values in _numbers(path, leaf, None)]
    return np.column_stack(parts) if parts else np.zeros((len(batch), 0))


def _numbers(
    path: str,
    leaf: np.ndarray,
    space: gym.Space | None,
    made_of: InputColumns | None = None,
    labels: Sequence[str] | Sequence[float] | None = None,
) -> list[tuple[str, np.ndarray]]:
    flat = leaf.reshape(len(leaf), -1)
    if path == columns.TIME and leaf.dtype == np.int64:
        return [(SECONDS, flat[:, 0] / 1e9)]
    if isinstance(space, gym.spaces.Discrete) and flat.shape[1] == 1 and 2 < int(space.n) <= MOST_ACTIONS:
        start, count = int(space.start), int(space.n)
        called = labels if labels is not None and len(labels) == len({*labels}) == count else range(start, start + count)
        return [(f"{path} = {label}", (flat[:, 0] == start + n).astype(float)) for n, label in enumerate(called)]
    if flat.shape[1] > MOST_NUMBERS:
        wide = flat.astype(np.float32)
        return [(f"{path} (mean)", wide.mean(axis=1)), (f"{path} (spread)", wide.std(axis=1))]
    names = number_names(path, flat.shape[1], made_of)
    return [(name, flat[:, i].astype(float)) for i, name in enumerate(names)]
