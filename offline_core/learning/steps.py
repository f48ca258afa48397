"""Whole episodes in memory, and the batches that are gathered from them by row numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from offline_core.episodes import columns
from offline_core.episodes.nested import PATH_SEPARATOR
from offline_core.errors import EpisodeError
from offline_core.prelearner.layout import IS_STEP, STARTS

Batch = dict[str, Any]
"""Tensors by column name: flat (`obs/position`, …) as they are gathered, nested as a policy takes them."""

MASK = "mask"
"""(S, L) bool in batches of sequences: True where a step counts, False where it only warms up the memory, or pads."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a batch has to hold."""

    columns: tuple[str, ...]
    """Names without paths: `obs` stands for all its leaves. `new_obs` is the observation `ahead` rows later."""
    frames: int = 1
    """If more than one: observations are (B, frames, …), the oldest first; before an episode's first its first again."""
    sequence_steps: int | None = None
    """If given, a batch is of sequences (S, L, …) with `MASK`, cut at the ends of episodes, L = burn-in + sequence."""
    burn_in_steps: int = 0
    """Steps before a sequence that only warm up the memory."""


class Steps:
    """Episodes one after the other, T + 1 rows each: a row a step, and one for the observation after the last.

    All that concerns neighbours in time (what follows a step, stacked frames, sequences, returns) is arithmetic with row
    numbers, so nothing is stored twice. Where nobody asks what follows, the last rows may be left out (T rows).

    Arguments:
        columns: flat columns by path, (R, …) each, all with R rows; what stands in an episode's last row means nothing
            but in observations.
        starts: (R,) bool, the row is the first of an episode.
        is_step: (R,) bool, False in the rows that only hold the observation after the last step.
    """

    def __init__(self, columns: Mapping[str, Tensor], *, starts: Tensor, is_step: Tensor) -> None:
        self.columns = dict(columns)
        if len(starts) and not starts[0]:
            raise EpisodeError("The first row of these steps is in the middle of an episode; they have to be whole.")
        first = starts.nonzero().squeeze(1)
        self.episode: Tensor = torch.cumsum(starts, 0, dtype=torch.int32) - 1
        """(R,) int32, the number of the row's episode."""
        self.first: Tensor = first
        """(E,) int64, the first row of each episode."""
        self.last: Tensor = torch.cat([first[1:], torch.tensor([len(starts)], device=first.device)]) - 1
        """(E,) int64, the last row of each episode."""
        self.rows: Tensor = is_step.nonzero().squeeze(1)
        """(N,) int64, the rows that are steps."""
        self.last_step: Tensor = self.last - (~is_step[self.last]).long()
        """(E,) int64, the row of each episode's last step."""
        self.ahead: Tensor | None = None
        """(R,) int64, how many rows later `new_obs` is; None: one."""

    @classmethod
    def of(cls, parts: Mapping[str, Tensor]) -> Steps:
        """Out of flat columns with `STARTS` and `IS_STEP`, as prelearners make them."""
        own = {path: column for path, column in parts.items() if path not in (STARTS, IS_STEP)}
        return cls(own, starts=parts[STARTS], is_step=parts[IS_STEP])

    @property
    def parts(self) -> dict[str, Tensor]:
        """What `of` takes."""
        starts, is_step = (torch.zeros(len(self.episode), dtype=torch.bool) for _ in range(2))
        starts[self.first], is_step[self.rows] = True, True
        return {**self.columns, STARTS: starts, IS_STEP: is_step}

    def __len__(self) -> int:
        """Steps."""
        return len(self.rows)

    def units(self, reading: Reading) -> Tensor:
        """What a batch is made of, each once an epoch: the rows of steps, or the first rows of sequences."""
        if reading.sequence_steps is None:
            return self.rows
        since = self.rows - self.first[self.episode[self.rows]]
        return self.rows[since % reading.sequence_steps == 0]

    def batch(self, units: Tensor, reading: Reading) -> Batch:
        """Flat columns for these units: (B, …), or (S, L, …) with `MASK` for sequences."""
        if reading.sequence_steps is None:
            return self._gather(units, reading)
        episode = self.episode[units].long()
        begin = torch.maximum(units - reading.burn_in_steps, self.first[episode])  # a memory is empty there
        rows = begin[:, None] + torch.arange(reading.burn_in_steps + reading.sequence_steps, device=units.device)
        end = torch.minimum(units + reading.sequence_steps - 1, self.last_step[episode])[:, None]
        batch = self._gather(rows.minimum(end), reading)
        batch[MASK] = (rows >= units[:, None]) & (rows <= end)
        return batch

    def count(self, units: Tensor, reading: Reading) -> int:
        """Steps in these units."""
        if reading.sequence_steps is None:
            return len(units)
        left = self.last_step[self.episode[units].long()] - units + 1
        return int(left.clamp(max=reading.sequence_steps).sum())

    def to(self, device: torch.device) -> Steps:
        """Moves everything there; these steps themselves."""
        self.columns = {path: column.to(device) for path, column in self.columns.items()}
        self.episode, self.first, self.last, self.last_step, self.rows = (
            tensor.to(device) for tensor in (self.episode, self.first, self.last, self.last_step, self.rows)
        )
        return self

    def _gather(self, rows: Tensor, reading: Reading) -> Batch:
        batch: Batch = {}
        for path, column in self.columns.items():
            name = path.partition(PATH_SEPARATOR)[0]
            if name == columns.OBS:
                if columns.OBS in reading.columns:
                    batch[path] = _take(column, self._frames(rows, reading.frames))
                if columns.NEW_OBS in reading.columns:
                    ahead = 1 if self.ahead is None else self.ahead[rows]
                    new = columns.NEW_OBS + path[len(columns.OBS) :]
                    batch[new] = _take(column, self._frames(rows + ahead, reading.frames))
            elif name in reading.columns:
                batch[path] = _take(column, rows)
        return batch

    def _frames(self, rows: Tensor, frames: int) -> Tensor:
        if frames == 1:
            return rows
        first = self.first[self.episode[rows].long()]
        return torch.maximum(rows[..., None] + torch.arange(1 - frames, 1, device=rows.device), first[..., None])


def _take(column: Tensor, rows: Tensor) -> Tensor:
    """`column[rows]` for rows of any shape; index_select is the fast way."""
    taken = column.index_select(0, rows.reshape(-1))
    return taken if rows.ndim == 1 else taken.reshape(*rows.shape, *column.shape[1:])
