"""A stream of episodes through a replay buffer: each chunk is what the buffer holds after a read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np
from torch import Tensor

from offline_core.ahead import one_ahead
from offline_core.learning.config import OptimizerConfig
from offline_core.learning.feed import Part, ReadSoFar, check_steps, joined, windows
from offline_core.learning.replay.buffer import ReplayBuffer, forgets, make_buffer
from offline_core.learning.replay.config import ReplayBufferConfig
from offline_core.learning.steps import Steps
from offline_core.prelearner.layout import IS_STEP, STARTS

NUMBER = "_number"
"""(R,) int64: rows are numbered as they come into the buffer, so that a row is known again in the next chunk, and in a process
that reads from a later epoch on."""
_FIRST_OF_EPOCH = 2**40
"""The number of the first row of epoch 1, and so on: more than an epoch has rows."""


class ReplayFeed:
    """What a buffer holds, chunk after chunk; its first one holds a batch, if the data does.

    The buffer is as it was at the end of the epoch before. It is nowhere stored: a run that goes on reads as much of the
    epochs before as the buffer remembers, all of them where it remembers for ever.

    Memory: what the buffer holds, three times: in the feed, in the chunk that is learned from, and in the next one.

    Arguments:
        parts: epoch → the dataset's parts, in an order that only depends on the epoch.
        forgets: what the buffer holds depends on nothing that was read more than its capacity ago.
        first_steps: it holds so many before the first batch is drawn, if it can.
        where: named in errors.
        expected_steps: of each epoch, if that is known.
    """

    resident = False

    def __init__(
        self,
        parts: Callable[[int], Iterator[Part]],
        buffer: ReplayBuffer,
        *,
        read_episodes: int,
        forgets: bool,
        first_steps: int,
        where: str,
        expected_steps: int | None,
    ) -> None:
        self._parts = parts
        self._buffer = buffer
        self._read_episodes = read_episodes
        self._epochs_held = math.ceil(buffer.capacity_steps / expected_steps) if forgets and expected_steps else None
        self._first_steps = first_steps
        self._where = where
        self._expected_steps = expected_steps
        self._held: tuple[int, Part | None] | None = None
        """(epoch, what the buffer held at its end)."""
        self._some_left = False
        self.read = ReadSoFar()

    @classmethod
    def of(
        cls,
        parts: Callable[[int], Iterator[Part]],
        config: ReplayBufferConfig,
        optimizer: OptimizerConfig,
        *,
        where: str,
        expected_steps: int | None,
    ) -> ReplayFeed:
        """As the parameters say."""
        return cls(
            parts,
            make_buffer(config, replacement=optimizer.replacement),
            read_episodes=config.read_episodes,
            forgets=forgets(config),
            first_steps=optimizer.batch_size,
            where=where,
            expected_steps=expected_steps,
        )

    def chunks(self, epoch: int, first: int = 0) -> Iterator[Steps]:
        """One is read while the one before is being learned from."""
        return one_ahead(self._chunks(epoch, first))

    def _chunks(self, epoch: int, first: int) -> Iterator[Steps]:
        number, held = 0, self._held_before(epoch)
        for content in self._contents(epoch, held):
            held = content
            if number or self._is_filled(held):
                if number >= first:
                    yield joined([held], self._where)
                number += 1
        if held is None or (not number and not first):
            yield joined([] if held is None else [held], self._where)  # all there is; nothing is an error
        self._held = (epoch, held)

    def _is_filled(self, held: Part) -> bool:
        """It holds a batch, or as much as it ever will: something had to leave."""
        return int(held[IS_STEP].sum()) >= self._first_steps or self._some_left

    def _held_before(self, epoch: int) -> Part | None:
        """What the buffer held at the end of the epoch before."""
        if self._held is not None and self._held[0] == epoch - 1:
            return self._held[1]
        held: Part | None = None
        self._some_left = False
        for before in range(0 if self._epochs_held is None else max(0, epoch - self._epochs_held), epoch):
            for content in self._contents(before, held):
                held = content
        return held

    def _contents(self, epoch: int, held: Part | None) -> Iterator[Part]:
        """After each read of an epoch."""
        found, following = 0, epoch * _FIRST_OF_EPOCH
        for read in windows(self.read.timed(self._parts(epoch)), self._read_episodes, of=STARTS):
            found += sum(int(part[IS_STEP].sum()) for part in read)
            if any(part[IS_STEP].any() for part in read):
                new = joined(read, self._where).parts
                held = self._added(held, new, following)
                following += len(new[STARTS])
                yield held
        check_steps(found, self._expected_steps, self._where)

    def _added(self, held: Part | None, new: Mapping[str, Tensor], following: int) -> Part:
        """The buffer with these episodes, without those that leave it; the first of their rows has the number `following`."""
        rows = len(new[STARTS])
        part = {name: tensor.numpy() for name, tensor in new.items()} | {NUMBER: np.arange(following, following + rows)}
        if held is not None:
            part = {name: np.concatenate([held[name], column]) for name, column in part.items()}
        starts = np.flatnonzero(part[STARTS])
        stays = self._buffer.keep(np.add.reduceat(part[IS_STEP].astype(np.int64), starts))
        if stays.all():
            return part
        self._some_left = True
        kept = stays[np.cumsum(part[STARTS]) - 1]
        return {name: column[kept] for name, column in part.items()}
