"""The data loader: every step of the dataset once an epoch, in an order that is a pure function of (seed, epoch)."""

from __future__ import annotations

import itertools
import logging
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from offline_core.data.episodes import EpisodeBatch, columns
from offline_core.data.episodes.columns import ROW_GROUP
from offline_core.errors import DataError, EmptyDatasetError
from offline_core.learning.config import ComputeConfig, DataConfig, ReplayBufferConfig, RewardsConfig
from offline_core.learning.pool import PrelearnerPool
from offline_core.learning.prelearner.mapper import ReadSoFar, check_same_columns, without, without_seconds
from offline_core.learning.replay_buffer import make_buffer
from offline_core.learning.run import Run
from offline_core.learning.shards import STAND_IN, ReadingOrder, Shards
from offline_core.learning.source import ColumnNeeds, Read, StepSource, resident_bytes
from offline_core.learning.steps import NUMBER, Steps
from offline_core.learning.trainer_config import OptimizerConfig
from offline_core.runtime.prefetch import Prefetched
from offline_core.runtime.progress import progress

log = logging.getLogger(__name__)

_FIRST_OF_EPOCH = 2**40
"""`NUMBER` of the first row of epoch 1, and so on: more than an epoch has rows."""


class DataLoader:
    """The steps of one epoch after the other, in windows of whole episodes that fit in memory.

    The windows of an epoch have each step of this learner's shards once. What stays in memory is read when this is made, and
    is one window, the same for all epochs. Otherwise each epoch reads anew, a window while the one before is learned from.

    Memory: the window that is learned from, the batches of the next one and, while they are joined, once more; what Ray
    prefetches.

    Arguments:
        read: row groups → their episodes, with the column `ROW_GROUP`.
        order: epoch → the order of its row groups; None: there are none, and the order is that of the data.
        shards: those of this learner.
        resident: all of it is one window that stays in memory; then the order is the same in all epochs.
        window_steps: where there are no row groups, as many steps and the episode that they end in make a window.
        where: named in errors.
        expected_steps: of an epoch, of all learners; None: that is not known.
        so_far: counts what `read` reads.

    Raises:
        DataError: What stays in memory cannot be read.
        EmptyDatasetError: There are no steps.
    """

    def __init__(
        self,
        read: Read,
        order: Callable[[int], ReadingOrder | None] = lambda epoch: None,
        shards: Shards = Shards(),
        *,
        resident: bool = False,
        window_steps: int = sys.maxsize,
        where: str = "The dataset",
        expected_steps: int | None = None,
        so_far: ReadSoFar | None = None,
    ) -> None:
        self.where, self.expected_steps, self.resident = where, expected_steps, resident
        self.read = so_far or ReadSoFar()
        self._read, self._order, self._shards = read, order, shards
        self._window_steps = sys.maxsize if resident else window_steps
        self._stand_in: EpisodeBatch | None = None
        self._kept: list[Steps] = []
        """The window that stays in memory."""
        self._ahead: Prefetched[Steps] | None = None
        """The windows that are read at present."""
        if resident:
            learners = 1 if order(0) is None else shards.world
            with progress(expected_steps and expected_steps // learners, what="load", unit="step") as bar:
                self._kept = list(self._windows(0, 0, lambda: bar.to(self.read.steps)))

    def windows(self, epoch: int, first: int = 0) -> Iterator[Steps]:
        """Return the windows of an epoch, from number `first` on; those that were asked for before end.

        Raises:
            DataError: They cannot be read.
            EmptyDatasetError: There are no steps.
        """
        if self.resident:
            return iter(self._kept[first:])
        self.close()
        self._ahead = Prefetched(self._windows(epoch, first))
        return self._ahead

    def close(self) -> None:
        """Wait for the window that is being read, if there is one: it may use what its caller is about to end, such as Ray."""
        if self._ahead is not None:
            self._ahead.close()
        self._ahead = None

    def _windows(self, epoch: int, first: int, on_batch: Callable[[], object] = lambda: None) -> Iterator[Steps]:
        order = self._order(epoch)
        numbered: Iterator[tuple[int, list[EpisodeBatch]]]
        batches = self._batches(None if order is None else order.read_by(self._shards, first), on_batch)
        if order is None:
            numbered = itertools.islice(enumerate(windows(batches, self._window_steps)), first, None)
        else:
            numbered = _by_window(batches, order, first)
        for number, window in numbered:
            own, shard = shards_of(window, order, number, self._shards)
            if not own:
                self._stand_in = self._stand_in or self._any_episode()
                own, shard = [self._stand_in], np.array([STAND_IN])
            yield Steps.of(joined(own, self.where)).cut(shard, self._shards.number)

    def _batches(self, numbers: Sequence[int] | None, on_batch: Callable[[], object]) -> Iterator[EpisodeBatch]:
        for batch in self._read(numbers):
            on_batch()
            yield batch

    def _any_episode(self) -> EpisodeBatch:
        """One episode of the dataset.

        Raises:
            EmptyDatasetError: There is none.
        """
        batch = next((batch for batch in self._read(None) if batch.rows), None)
        return joined([] if batch is None else [without(batch.slice(0, 1), ROW_GROUP).copy()], self.where)


class ReplayLoader(DataLoader):
    """What a replay buffer holds, window after window; the first one holds a training batch, if the data does.

    The buffer begins as it was at the end of the epoch before. It is not stored: a run that resumes reads as much of the
    epochs before as the buffer remembers, all of them where it remembers for ever.

    Memory: what the buffer holds, three times: in the loader, in the window that is learned from, and in the next one.

    Arguments:
        buffer: the parameters of the buffer.
        optimizer: whose batches are drawn.
        expected_steps: of each epoch, if that is known. Windows have others, for a step is in several of them.
    """

    def __init__(
        self,
        read: Read,
        order: Callable[[int], ReadingOrder | None],
        buffer: ReplayBufferConfig,
        optimizer: OptimizerConfig,
        *,
        where: str,
        expected_steps: int | None,
        so_far: ReadSoFar | None = None,
    ) -> None:
        super().__init__(read, order, where=where, so_far=so_far)
        self._buffer = make_buffer(buffer, replacement=optimizer.replacement)
        self._read_episodes = buffer.read_episodes
        forgets = buffer.buffer_class is None  # it holds nothing that was read more than its capacity ago
        self._epochs_held = math.ceil(buffer.capacity_steps / expected_steps) if forgets and expected_steps else None
        self._first_steps = optimizer.batch_size
        self._epoch_steps = expected_steps
        self._held: tuple[int, EpisodeBatch | None] | None = None
        """(epoch, what the buffer held at its end)."""
        self._some_left = False

    def _windows(self, epoch: int, first: int, on_batch: Callable[[], object] = lambda: None) -> Iterator[Steps]:
        number, held = 0, self._held_before(epoch)
        for content in self._contents(epoch, held):
            held = content
            if number or self._is_filled(held):
                if number >= first:
                    yield Steps.of(held)
                number += 1
        if held is None or (not number and not first):
            yield Steps.of(joined([] if held is None else [held], self.where))  # all there is; nothing is an error
        self._held = (epoch, held)

    def _is_filled(self, held: EpisodeBatch) -> bool:
        """Return whether it holds a training batch, or as much as it ever will: something had to leave."""
        return len(held) >= self._first_steps or self._some_left

    def _held_before(self, epoch: int) -> EpisodeBatch | None:
        """Return what the buffer held at the end of the epoch before."""
        if self._held is not None and self._held[0] == epoch - 1:
            return self._held[1]
        held: EpisodeBatch | None = None
        self._some_left = False
        for before in range(0 if self._epochs_held is None else max(0, epoch - self._epochs_held), epoch):
            for content in self._contents(before, held):
                held = content
        return held

    def _contents(self, epoch: int, held: EpisodeBatch | None) -> Iterator[EpisodeBatch]:
        """Return what the buffer holds after each read of an epoch."""
        steps, row = 0, epoch * _FIRST_OF_EPOCH
        order = self._order(epoch)
        batches = self._read(None if order is None else order.read_by(self._shards))
        for episodes in windows(batches, self._read_episodes, of_episodes=True):
            if any(batch.rows for batch in episodes):
                new = without(joined(episodes, self.where), ROW_GROUP)
                held = self._added(held, new, row)
                steps += len(new)
                row += new.rows
                yield held
        check_steps(steps, self._epoch_steps, self.where)

    def _added(self, held: EpisodeBatch | None, new: EpisodeBatch, row: int) -> EpisodeBatch:
        """Return the buffer with these episodes, without those that leave it; `row` is the number of their first row."""
        new = new | {NUMBER: np.arange(row, row + new.rows)}
        content = new if held is None else EpisodeBatch.concatenate([held, new])
        stays = self._buffer.keep(content.lengths)
        if stays.all():
            return content
        self._some_left = True
        return content.select(stays)


def make_data_loader(
    source: StepSource,
    config: DataConfig,
    algorithm: ColumnNeeds,
    *,
    expected_steps: int | None = None,
    streamed: bool,
    seed: int,
    shards: Shards = Shards(),
    compute: ComputeConfig = ComputeConfig(),
    optimizer: OptimizerConfig = OptimizerConfig(),
    loaded: EpisodeBatch | None = None,
    share: float = 1.0,
) -> DataLoader:
    """Return the data loader of `source`; needs Ray if there are to be prelearners.

    Arguments:
        expected_steps: of all learners' shards.
        streamed: read the source anew each epoch; otherwise it stays in memory.
        seed: of the order in which a stream reads.
        shards: those to read; a replay buffer holds all.
        compute: the learners that share the prelearners.
        optimizer: whose batches come out of a replay buffer, if there is one.
        loaded: all columns of the source, in memory; they are neither copied nor written to.
        share: of the row groups, evenly spread, where they stay in memory.
    """
    pool = PrelearnerPool.of(config, compute)
    uri, row_groups, so_far = source.origin.ref.uri, source.row_groups, ReadSoFar()
    through = partial(through_cache, {}) if streamed and config.resident_bytes == "rows" else None

    def read(numbers: Sequence[int] | None) -> Iterator[EpisodeBatch]:
        if loaded is not None:
            return scaled(iter([loaded]), config.rewards)
        batches = source.training_columns(algorithm, numbers, pool=pool, through=through)
        return so_far.timed(scaled(batches, config.rewards))

    def order(epoch: int) -> ReadingOrder | None:
        if not row_groups:
            return None
        if not streamed:
            return ReadingOrder.stored(row_groups, share)
        steps = expected_steps or source.origin.ref.steps
        return ReadingOrder.drawn(seed, epoch, steps=steps, row_groups=row_groups, window_steps=config.window_steps)

    known: dict[str, Any] = {"where": uri, "expected_steps": expected_steps, "so_far": so_far}
    if streamed and config.buffer is not None:
        return ReplayLoader(read, order, config.buffer, optimizer, **known)
    return DataLoader(read, order, shards, resident=not streamed, window_steps=config.window_steps, **known)


def loader_of(run: Run, *, rank: int = 0, world: int = 1, loaded: EpisodeBatch | None = None) -> DataLoader:
    """Return the loader of the data that learner `rank` of `world` learns from.

    Arguments:
        loaded: what `loaded_columns` returned for it.

    Raises:
        ConfigError: There are more learners than shards.
    """
    return make_data_loader(
        run.source,
        run.config.data,
        run.algorithm,
        expected_steps=run.steps,
        streamed=run.streamed,
        seed=run.config.seed,
        shards=run.shards(rank, world),
        compute=run.config.compute,
        optimizer=run.config.optimizer,
        loaded=loaded,
    )


def held_out_loader_of(run: Run) -> DataLoader | None:
    """Return the loader of the held-out data, in memory; None: there is none.

    Of data that takes more than `evaluation.held_out_bytes` so much is held out, in row groups from all over it.
    """
    if run.held_out is None:
        return None
    config, source = run.config, run.held_out
    needed = 0 if config.data.resident_bytes == "rows" else resident_bytes(source, source.origin.ref.steps)
    share = min(1.0, config.evaluation.held_out_bytes / max(1, needed))
    if share < 1 and source.row_groups:
        chosen = len(ReadingOrder.stored(source.row_groups, share).numbers)
        log.info("The loss of held-out data is that of %s of its %s row groups", f"{chosen:,}", f"{source.row_groups:,}")
    return make_data_loader(
        source, config.data, run.algorithm, streamed=False, seed=config.seed, compute=config.compute, share=share
    )


def loaded_columns(run: Run) -> EpisodeBatch:
    """Return all columns that the run learns from, in memory, for all runs that need the same ones of the same data."""
    with run.source.reading():
        batches = [without_seconds(batch)[0] for batch in run.source.training_columns(run.algorithm)]
    return joined(batches, run.dataset.uri)


def through_cache(kept: dict[int | None, list[Any]], numbers: Sequence[int] | None, read: Read) -> Iterator[Any]:
    """Return what is read of row groups, of which only those are read that `kept` does not have; it keeps them.

    Memory: tables as they are stored, without Parquet's compression; for a pool of prelearners, in Ray's object store. Each of
    several learners keeps what it has read, in the end all of it.
    """
    if numbers is None:
        if None in kept:
            yield from kept[None]
            return
        everything = []
        for item in read(None):
            everything.append(item)
            yield item
        kept[None] = everything
        return
    missing = [number for number in numbers if number not in kept]
    reading = iter(read(missing)) if missing else iter(())
    for number in numbers:
        if number not in kept:
            kept[number] = [next(reading)]
        yield from kept[number]


def scaled(batches: Iterator[EpisodeBatch], rewards: RewardsConfig) -> Iterator[EpisodeBatch]:
    """Return the same batches with rewards as they are learned; `rewards.scale` is a number."""
    if rewards == RewardsConfig():
        return batches
    return (
        batch | {columns.REWARDS: batch[columns.REWARDS] * rewards.scale + rewards.shift} if columns.REWARDS in batch else batch
        for batch in batches
    )


def shards_of(
    batches: list[EpisodeBatch], order: ReadingOrder | None, window: int, shards: Shards
) -> tuple[list[EpisodeBatch], np.ndarray]:
    """Return the episodes of a learner's shards, of all of a window that it read, and their shards (E,) int64.

    If it has none of those, one of the others stands in. Nothing if the window has no episodes.
    """
    batches = [batch for batch in batches if batch.rows]
    if not batches:
        return [], np.zeros(0, np.int64)
    lengths = np.concatenate([batch.lengths for batch in batches])
    position, row_groups = np.zeros(len(lengths), np.int64), 1
    if order is not None:
        numbers = np.concatenate([batch[ROW_GROUP][batch.offsets[:-1]] for batch in batches])
        position, row_groups = order.positions_of(numbers)[1], order.in_window(window)
    shard = shards.of_episodes(lengths, position, row_groups)
    own = (shard >= shards.own.start) & (shard < shards.own.stop)
    if not own.any():
        own[0], shard[0] = True, STAND_IN
    own_of_batch = np.split(own, np.cumsum([batch.num_episodes for batch in batches])[:-1])
    chosen = [
        batch if is_own.all() else batch.select(is_own)
        for batch, is_own in zip(batches, own_of_batch, strict=True)
        if is_own.any()
    ]
    return [without(batch, ROW_GROUP) for batch in chosen], shard[own]


def _by_window(batches: Iterable[EpisodeBatch], order: ReadingOrder, first: int) -> Iterator[tuple[int, list[EpisodeBatch]]]:
    """Return the number and the episodes of each window from `first` on."""
    number, waiting = first, list[EpisodeBatch]()
    for batch in batches:
        if not batch.rows:
            continue
        window, _ = order.positions_of(batch[ROW_GROUP][batch.offsets[:-1]])
        begin = 0
        while begin < len(window):
            stop = int(np.searchsorted(window, window[begin], side="right"))
            while number < window[begin]:
                yield number, waiting
                number, waiting = number + 1, []
            waiting.append(batch.slice(begin, stop))
            begin = stop
    for last in range(number, order.windows):
        yield last, waiting
        waiting = []


def windows(batches: Iterable[EpisodeBatch], size: int, *, of_episodes: bool = False) -> Iterator[list[EpisodeBatch]]:
    """Return the same episodes in windows, each ending with the episode that fills it: however they came in batches.

    At least one window, and the last one may be shorter.

    Arguments:
        size: of a window, in steps, or with `of_episodes` in episodes.
    """
    waiting: list[EpisodeBatch] = []
    held = 0
    first = True
    for batch in batches:
        sizes = np.ones(batch.num_episodes, np.int64) if of_episodes else batch.lengths
        before = np.cumsum(sizes) - sizes
        begin = done = 0
        while (end := int(np.searchsorted(before, done + size - held))) < len(before):
            waiting.append(batch.slice(begin, end))
            yield waiting
            first = False
            waiting, held, begin, done = [], 0, end, int(before[end])
        waiting.append(batch.slice(begin, batch.num_episodes))
        held += int(sizes[begin:].sum())
    if held or first:
        yield waiting


def joined(batches: list[EpisodeBatch], where: str) -> EpisodeBatch:
    """Return the episodes of all batches, in this order, as one; a single batch is not copied.

    Raises:
        EmptyDatasetError: There are none.
        SchemaError: Some have other columns.
    """
    batches = [batch for batch in batches if batch.rows]
    if not batches:
        raise EmptyDatasetError(f"{where} holds no steps to learn from.")
    check_same_columns(batches, where)
    return EpisodeBatch.concatenate(batches)


def check_steps(steps: int, expected: int | None, where: str) -> None:
    """Raise a DataError if an epoch had other than the expected steps."""
    if expected not in (None, steps):
        raise DataError(
            f"{where} gives {steps:,} steps, and {expected:,} when they were counted. Your code has to give the same each "
            "time; if none of yours reads this, its files have changed."
        )
