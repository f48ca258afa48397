"""What the rules look at: a batch of steps, and what came before it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from offline_core.data.episodes import EpisodeBatch, columns

Types = dict[str, tuple[str, tuple[int, ...]]]
"""(dtype, shape of one step) by the name of the leaf."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StepBatch(EpisodeBatch):
    """A flat `EpisodeBatch`, and what came before each of its episodes in the dataset.

    A piece of an episode is rows that follow each other with the same id and with rising t; it may have no steps. All steps
    of a batch have the same types and spaces. `columns` are `obs`, `new_obs`, `actions`, `rewards`, `t`, the flags of ends,
    and extras, dicts and tuples by path (`obs/position`).
    """

    eps_ids: list[str]
    t_started: np.ndarray
    dataset: str
    contents: list[str]
    """E times what `content_of` says of a piece: the same for the same steps, whatever the id."""
    is_repeated: np.ndarray
    """(E,) a piece with that id and that first step was there before."""
    t_expected: np.ndarray
    """(E,) the step after the last one of the piece of the same episode that came before; -1 without one."""
    was_done: np.ndarray
    """(E,) the piece that came before had ended the episode already."""

    @property
    def t(self) -> np.ndarray:
        """(N,)"""
        return self.columns[columns.T]  # type: ignore[no-any-return]

    @property
    def terminated(self) -> np.ndarray:
        """(N,) the step reached a terminal state."""
        return self.columns[columns.TERMINATEDS]  # type: ignore[no-any-return]

    @property
    def truncated(self) -> np.ndarray:
        """(N,) the episode was cut off at the step."""
        return self.columns[columns.TRUNCATEDS]  # type: ignore[no-any-return]

    @functools.cached_property
    def done(self) -> np.ndarray:
        """(N,) no step can follow."""
        return np.asarray(self.terminated | self.truncated)

    @functools.cached_property
    def follows(self) -> np.ndarray:
        """The rows that are not the first of their piece."""
        return np.delete(np.arange(len(self)), self.offsets[:-1][self.lengths > 0])

    @functools.cached_property
    def last_rows(self) -> np.ndarray:
        """The last row of each piece that has one."""
        return self.last_steps[self.lengths > 0]

    @functools.cached_property
    def types(self) -> Types:
        return types_of(self.columns)

    def any_in_piece(self, steps: np.ndarray) -> np.ndarray:
        """(E,) whether one of the piece's steps is True."""
        return np.asarray(np.bincount(self.episode[steps], minlength=self.num_episodes) > 0)


def types_of(leaves: Any) -> Types:
    """The types of columns of shape (N, …)."""
    return {name: ("text" if leaf.dtype.kind == "U" else str(leaf.dtype), leaf.shape[1:]) for name, leaf in leaves.items()}
