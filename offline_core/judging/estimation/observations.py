"""Recorded observations as a policy takes them: single ones, the last frames, or whole episodes."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from offline_core.data.episodes import EpisodeBatch, columns, nested
from offline_core.data.episodes.nested import Nested
from offline_core.policies.policy import as_tensors

ROWS_AT_A_TIME = 8192
BYTES_AT_A_TIME = 64 * 2**20
"""Memory of the observations that a network sees together; its layers may take some times as much."""


class Observations:
    """The R observations of a batch of whole episodes, as tensors.

    Arguments:
        batch: flat, with the column `obs`, or `obs/position`, …
        space: of one observation.
    """

    def __init__(self, batch: EpisodeBatch, space: gym.Space[Any]) -> None:
        self._values = tensors_of(batch, columns.OBS, space)
        self.batch = batch
        self.starts = torch.from_numpy(batch.offsets[:-1])
        """(E,) int64, the first of each episode."""
        self.lengths = torch.from_numpy(np.diff(batch.offsets))
        """(E,) int64"""
        self._first = torch.from_numpy(batch.first)

    def __len__(self) -> int:
        return len(self._first)

    def at(self, rows: Tensor, *, frames: int = 1) -> Nested:
        """The observations of rows of any shape, nested as their space: (*shape, …), or (*shape, frames, …).

        The oldest frame comes first; before an episode's first observation stands that observation.
        """
        if frames > 1:
            rows = torch.maximum(rows[..., None] + torch.arange(1 - frames, 1), self._first[rows][..., None])
        return nested.map_leaves(lambda leaf: leaf[rows], self._values)


def tensors_of(batch: EpisodeBatch, name: str, space: gym.Space[Any]) -> Nested:
    """A column as tensors (R, …), nested as its space."""
    return nested.unflatten(as_tensors(batch.leaves(name)), name, space)


def rows_at_a_time(size: int, *, frames: int = 1) -> int:
    """How many observations of so many numbers are looked at together: `ROWS_AT_A_TIME`, or as many as take `BYTES_AT_A_TIME`
    as float32."""
    return max(1, min(ROWS_AT_A_TIME, BYTES_AT_A_TIME // (4 * max(1, size) * frames)))
