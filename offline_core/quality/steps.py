"""What the rules look at: a batch of steps."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from offline_core.episodes import columns
from offline_core.episodes.episode import return_of

Types = dict[str, tuple[str, tuple[int, ...]]]
"""(dtype, shape of one step) by the name of the leaf."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StepBatch:
    """N steps of E episodes, or pieces of them: rows that follow each other with the same id and with rising t.

    All steps of a batch have the same types and spaces. A piece may have no steps.
    """

    dataset: str
    eps_ids: list[str]
    """E ids."""
    offsets: np.ndarray
    """Shape (E+1,): piece i is the rows offsets[i] to offsets[i+1] (exclusive)."""
    columns: dict[str, np.ndarray]
    """Arrays of shape (N, …) by the name of the leaf: `obs`, `new_obs`, `actions`, `rewards`, and extras; dicts and tuples
    by path (`obs/position`)."""
    t: np.ndarray
    """Shape (N,)."""
    terminated: np.ndarray
    """Shape (N,): the step reached a terminal state."""
    truncated: np.ndarray
    """Shape (N,): the episode was cut off at the step."""
    contents: list[str]
    """E times what `content_of` says of a piece: the same for the same steps, whatever the id."""
    t_started: np.ndarray
    """Shape (E,)."""
    is_repeated: np.ndarray
    """Shape (E,): a piece with that id and that first step was there before."""
    t_expected: np.ndarray
    """Shape (E,): the step after the last one of the piece of the same episode that came before; -1 without one."""
    was_done: np.ndarray
    """Shape (E,): the piece that came before had ended the episode already."""
    observation_space: gym.Space[Any] | None
    action_space: gym.Space[Any] | None

    def __len__(self) -> int:
        """N, the number of steps."""
        return len(self.t)

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """Shape (E,)."""
        return np.diff(self.offsets)

    @functools.cached_property
    def piece(self) -> np.ndarray:
        """Shape (N,): the number of the piece that each step belongs to."""
        return np.repeat(np.arange(len(self.eps_ids)), self.lengths)

    @functools.cached_property
    def follows(self) -> np.ndarray:
        """The rows that are not the first of their piece."""
        return np.delete(np.arange(len(self)), self.offsets[:-1][self.lengths > 0])

    @functools.cached_property
    def last_rows(self) -> np.ndarray:
        """The last row of each piece that has one."""
        return self.offsets[1:][self.lengths > 0] - 1

    @functools.cached_property
    def done(self) -> np.ndarray:
        """Shape (N,): no step can follow."""
        return np.asarray(self.terminated | self.truncated)

    @functools.cached_property
    def types(self) -> Types:
        return types_of(self.columns)

    def any_in_piece(self, steps: np.ndarray) -> np.ndarray:
        """Shape (E,): whether one of the piece's steps is True."""
        return np.asarray(np.bincount(self.piece[steps], minlength=len(self.eps_ids)) > 0)

    def returns(self) -> np.ndarray:
        """Shape (E,): undiscounted sums of the rewards."""
        rewards = self.columns[columns.REWARDS]
        return np.array([return_of(rewards[start:stop]) for start, stop in itertools.pairwise(self.offsets)])


def types_of(leaves: dict[str, np.ndarray]) -> Types:
    """Those of columns of shape (N, …)."""
    return {name: ("text" if leaf.dtype.kind == "U" else str(leaf.dtype), leaf.shape[1:]) for name, leaf in leaves.items()}
