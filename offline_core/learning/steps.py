"""An episode batch as tensors, and the training batches that are gathered from it by row numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from offline_core.data.environments.vector_env import Spaces
from offline_core.data.episodes import EpisodeBatch, columns, nested
from offline_core.data.episodes.nested import PATH_SEPARATOR
from offline_core.learning.shards import STAND_IN
from offline_core.policies.policy import as_tensors

Batch = dict[str, Any]
"""Tensors by column name: flat (`obs/position`, …) as they are gathered, nested as a policy takes them."""

MASK = "mask"
"""(S, L) bool in batches of sequences: True where a step counts, False where it only warms up the memory, or pads."""

NUMBER = "_number"
"""(R,) int64: rows are numbered as they come into a replay buffer, so that a row is known again in the next window, and in a
process that reads from a later epoch on."""


@dataclass(frozen=True, slots=True)
class BatchSpec:
    """What a batch has to hold."""

    columns: tuple[str, ...]
    """Names without paths: `obs` stands for all its leaves. `new_obs` is the observation `ahead` rows later."""
    frames: int = 1
    """If more than one: observations are (B, frames, …), the oldest first; before an episode's first its first again."""
    sequence_steps: int | None = None
    """If given, a batch is of sequences (S, L, …) with `MASK`, cut at the ends of episodes, L = burn-in + sequence."""
    burn_in_steps: int = 0
    """Steps before a sequence that only warm up the memory."""
    phase: int = 0
    """The first sequence of each episode is so many steps shorter, and the others begin as many earlier."""


class Steps:
    """An `EpisodeBatch` as tensors on the learner's device, to which algorithms add columns.

    All that concerns neighbours in time (what follows a step, stacked frames, sequences, returns) is arithmetic with row
    numbers, so nothing is stored twice. Where an algorithm needs no next observation, episodes have no last rows.

    Arguments:
        columns: flat columns by path, (R, …) each; what an episode's last row holds means nothing but in observations.
        offsets: (E+1,) int64 as in `EpisodeBatch`.
        has_last: likewise.
    """

    def __init__(self, columns: Mapping[str, Tensor], offsets: Tensor, *, has_last: bool) -> None:
        self.columns = dict(columns)
        self.offsets, self.has_last = offsets, has_last
        first = offsets[:-1]
        self.episode: Tensor = torch.repeat_interleave(torch.arange(len(first), dtype=torch.int32), offsets.diff())
        """(R,) int32, the number of the row's episode."""
        self.first: Tensor = first
        """(E,) int64, the first row of each episode."""
        self.last: Tensor = offsets[1:] - 1
        """(E,) int64, the last row of each episode."""
        self.last_step: Tensor = self.last - int(has_last)
        """(E,) int64, the row of each episode's last step."""
        self.rows: Tensor = torch.arange(len(self.episode))
        """(N,) int64, the rows that are steps."""
        if has_last:
            is_step = torch.ones(len(self.episode), dtype=torch.bool)
            is_step[self.last] = False
            self.rows = is_step.nonzero().squeeze(1)
        self.ahead: Tensor | None = None
        """(R,) int64, how many rows later `new_obs` is; None: one."""
        self.shard: Tensor = torch.zeros_like(first)
        """(E,) int64 rising, the shard of each episode."""
        self.shards = 1
        """Number of shards that all learners have together."""
        self.all_steps = len(self.rows)
        """Of all learners."""

    @classmethod
    def of(cls, batch: EpisodeBatch) -> Steps:
        """Make steps of a flat batch, as prelearners make them; arrays that can be written to are not copied."""
        return cls(as_tensors(dict(batch.columns)), torch.from_numpy(batch.offsets), has_last=batch.has_last)

    def cut(self, shard: np.ndarray, shards: int) -> Self:
        """Say of which shards the episodes are; nothing is learned from one that stands in. Returns the same."""
        self.shard, self.shards = torch.from_numpy(shard), shards
        if (shard == STAND_IN).any():
            self.rows = self.rows[:0]
        return self

    def __len__(self) -> int:
        """Steps."""
        return len(self.rows)

    def indices(self, spec: BatchSpec) -> Tensor:
        """The sample indices, each drawn once an epoch: the rows of steps, or the first rows of sequences."""
        if spec.sequence_steps is None:
            return self.rows
        since = self.rows - self.first[self.episode[self.rows]]
        return self.rows[(since == 0) | ((since + spec.phase) % spec.sequence_steps == 0)]

    def sample(self, most: int) -> Tensor:
        """Rows of steps at equal distances, about `most` of all learners; the same whatever the number of learners."""
        shard = self.shard_of(self.rows)
        since = torch.arange(len(shard), device=shard.device) - torch.searchsorted(shard, shard)
        return self.rows[since % (1 + self.all_steps // most) == 0]

    def shard_of(self, indices: Tensor) -> Tensor:
        """(len(indices),) int64, the shard of these rows."""
        return self.shard[self.episode[indices].long()]

    def batch(self, indices: Tensor, spec: BatchSpec) -> Batch:
        """Flat columns for these sample indices: (B, …), or (S, L, …) with `MASK` for sequences."""
        if spec.sequence_steps is None:
            return self._gather(indices, spec)
        episode = self.episode[indices].long()
        begin = torch.maximum(indices - spec.burn_in_steps, self.first[episode])  # a memory is empty there
        rows = begin[:, None] + torch.arange(spec.burn_in_steps + spec.sequence_steps, device=indices.device)
        end = (indices + self._lengths(indices, spec) - 1)[:, None]
        batch = self._gather(rows.minimum(end), spec)
        batch[MASK] = (rows >= indices[:, None]) & (rows <= end)
        return batch

    def count(self, indices: Tensor, spec: BatchSpec) -> int:
        """Steps at these sample indices."""
        return len(indices) if spec.sequence_steps is None else int(self.counts([indices], spec))

    def counts(self, parts: Sequence[Tensor], spec: BatchSpec) -> Tensor:
        """(parts,) int64, the steps at each of these lists of sample indices; a GPU is not waited for."""
        sizes = [len(part) for part in parts]
        if spec.sequence_steps is None or not parts:
            return torch.tensor(sizes, dtype=torch.int64, device=self.rows.device)
        lengths = self._lengths(torch.cat([*parts]), spec)
        return torch.stack([part.sum() for part in lengths.split(sizes)])

    def _lengths(self, indices: Tensor, spec: BatchSpec) -> Tensor:
        """(S,) int64, the steps of the sequences that begin at these rows."""
        assert spec.sequence_steps is not None
        episode = self.episode[indices].long()
        lengths = spec.sequence_steps - spec.phase * (indices == self.first[episode])
        return torch.minimum(lengths, self.last_step[episode] - indices + 1)

    def to(self, device: torch.device) -> Steps:
        """Move all tensors to `device`, in place."""
        self.columns = {path: column.to(device) for path, column in self.columns.items()}
        for name in ("offsets", "episode", "first", "last", "last_step", "rows", "shard"):
            setattr(self, name, getattr(self, name).to(device))
        return self

    def _gather(self, rows: Tensor, spec: BatchSpec) -> Batch:
        batch: Batch = {}
        for path, column in self.columns.items():
            name = path.partition(PATH_SEPARATOR)[0]
            if name == columns.OBS:
                if columns.OBS in spec.columns:
                    batch[path] = _take(column, self._frames(rows, spec.frames))
                if columns.NEW_OBS in spec.columns:
                    ahead = 1 if self.ahead is None else self.ahead[rows]
                    new = columns.NEW_OBS + path[len(columns.OBS) :]
                    batch[new] = _take(column, self._frames(rows + ahead, spec.frames))
            elif name in spec.columns:
                batch[path] = _take(column, rows)
        return batch

    def _frames(self, rows: Tensor, frames: int) -> Tensor:
        if frames == 1:
            return rows
        first = self.first[self.episode[rows].long()]
        return torch.maximum(rows[..., None] + torch.arange(1 - frames, 1, device=rows.device), first[..., None])


def nested_as(batch: Batch, spaces: Spaces) -> Batch:
    """Return observations and actions of a flat batch nested as their spaces, and the other columns as they are."""
    space_of = {columns.OBS: spaces[0], columns.NEW_OBS: spaces[0], columns.ACTIONS: spaces[1]}
    names = {path: path.partition(PATH_SEPARATOR)[0] for path in batch}
    composite = {name: nested.unflatten(batch, name, space_of[name]) for name in set(names.values()) & space_of.keys()}
    return {path: column for path, column in batch.items() if names[path] not in space_of} | composite


def _take(column: Tensor, rows: Tensor) -> Tensor:
    """`column[rows]` for rows of any shape; index_select is the fast way."""
    taken = column.index_select(0, rows.reshape(-1))
    return taken if rows.ndim == 1 else taken.reshape(*rows.shape, *column.shape[1:])
