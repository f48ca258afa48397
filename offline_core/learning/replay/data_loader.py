"""Episodes streaming through a replay buffer: each window is what the buffer holds after a read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from offline_core.data.datasets.row_groups import ROW_GROUP
from offline_core.data.episodes import EpisodeBatch
from offline_core.learning.data_loader import ReadSoFar, check_steps, joined, windows, without
from offline_core.learning.optimizer_config import OptimizerConfig
from offline_core.learning.replay.buffer import make_buffer
from offline_core.learning.replay.config import ReplayBufferConfig
from offline_core.learning.steps import Steps
from offline_core.runtime.prefetch import prefetched

NUMBER = "_number"
"""(R,) int64: rows are numbered as they come into the buffer, so that a row is known again in the next window, and in a
process that reads from a later epoch on."""
_FIRST_OF_EPOCH = 2**40
"""The number of the first row of epoch 1, and so on: more than an epoch has rows."""


class ReplayLoader:
    """What a buffer holds, window after window; the first one holds a training batch, if the data does.

    The buffer begins as it was at the end of the epoch before. It is not stored: a run that resumes reads as much of the
    epochs before as the buffer remembers, all of them where it remembers for ever.

    Memory: what the buffer holds, three times: in the loader, in the window that is learned from, and in the next one.

    Arguments:
        batches: epoch → the dataset's batches, in an order that only depends on the epoch.
        optimizer: whose batches are drawn.
        where: named in errors.
        expected_steps: of each epoch, if that is known.
    """

    resident = False
    expected_steps: int | None = None
    """Not of the windows: a step is in several of them."""

    def __init__(
        self,
        batches: Callable[[int], Iterator[EpisodeBatch]],
        config: ReplayBufferConfig,
        optimizer: OptimizerConfig,
        *,
        where: str,
        expected_steps: int | None,
    ) -> None:
        self._batches = batches
        self._buffer = make_buffer(config, replacement=optimizer.replacement)
        self._read_episodes = config.read_episodes
        forgets = config.buffer_class is None  # it holds nothing that was read more than its capacity ago
        self._epochs_held = math.ceil(config.capacity_steps / expected_steps) if forgets and expected_steps else None
        self._first_steps = optimizer.batch_size
        self.where = where
        self._expected_steps = expected_steps
        self._held: tuple[int, EpisodeBatch | None] | None = None
        """(epoch, what the buffer held at its end)."""
        self._some_left = False
        self.read = ReadSoFar()

    def windows(self, epoch: int, first: int = 0) -> Iterator[Steps]:
        """One is read while the one before is being learned from."""
        return prefetched(self._chunks(epoch, first))

    def _chunks(self, epoch: int, first: int) -> Iterator[Steps]:
        number, held = 0, self._held_before(epoch)
        for content in self._contents(epoch, held):
            held = content
            if number or self._is_filled(held):
                if number >= first:
                    yield Steps.of(joined([held], self.where))
                number += 1
        if held is None or (not number and not first):
            yield Steps.of(joined([] if held is None else [held], self.where))  # all there is; nothing is an error
        self._held = (epoch, held)

    def _is_filled(self, held: EpisodeBatch) -> bool:
        """Whether it holds a training batch, or as much as it ever will: something had to leave."""
        return len(held) >= self._first_steps or self._some_left

    def _held_before(self, epoch: int) -> EpisodeBatch | None:
        """What the buffer held at the end of the epoch before."""
        if self._held is not None and self._held[0] == epoch - 1:
            return self._held[1]
        held: EpisodeBatch | None = None
        self._some_left = False
        for before in range(0 if self._epochs_held is None else max(0, epoch - self._epochs_held), epoch):
            for content in self._contents(before, held):
                held = content
        return held

    def _contents(self, epoch: int, held: EpisodeBatch | None) -> Iterator[EpisodeBatch]:
        """After each read of an epoch."""
        found, following = 0, epoch * _FIRST_OF_EPOCH
        for read in windows(self.read.timed(self._batches(epoch)), self._read_episodes, of_episodes=True):
            if any(batch.rows for batch in read):
                new = without(joined(read, self.where), ROW_GROUP)
                held = self._added(held, new, following)
                found += len(new)
                following += new.rows
                yield held
        check_steps(found, self._expected_steps, self.where)

    def _added(self, held: EpisodeBatch | None, new: EpisodeBatch, following: int) -> EpisodeBatch:
        """The buffer with these episodes, without those that leave it; the first of their rows has the number `following`."""
        new = new | {NUMBER: np.arange(following, following + new.rows)}
        content = new if held is None else EpisodeBatch.concatenate([held, new])
        stays = self._buffer.keep(content.lengths)
        if stays.all():
            return content
        self._some_left = True
        return content.select(stays)
