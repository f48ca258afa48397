"""The data loader: every step of the dataset once an epoch, in an order that is a pure function of (seed, epoch)."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Protocol

import numpy as np

from offline_core.data.datasets.row_groups import ROW_GROUP
from offline_core.data.episodes import EpisodeBatch
from offline_core.errors import DataError, EmptyDatasetError, SchemaError
from offline_core.learning.prelearner.mapper import SECONDS
from offline_core.learning.shards import STAND_IN, ReadingOrder, Shards
from offline_core.learning.steps import Steps
from offline_core.runtime.prefetch import prefetched
from offline_core.runtime.progress import progress


@dataclass(slots=True)
class ReadSoFar:
    """What reading and prelearning have produced, and how long it took; zeros where another process reads."""

    steps: int = 0
    bytes: int = 0
    """In memory."""
    seconds: float = 0.0
    """That the reader of the batches waited."""
    read_seconds: float = 0.0
    """Of reading files, in all processes and threads."""
    prelearner_seconds: float = 0.0
    """Of mapping rows, in all processes."""

    def since(self, other: ReadSoFar) -> ReadSoFar:
        """What came after `other`."""
        return ReadSoFar(*(getattr(self, each.name) - getattr(other, each.name) for each in fields(self)))

    def timed(self, batches: Iterable[EpisodeBatch]) -> Iterator[EpisodeBatch]:
        """The same batches, counted."""
        waiting = iter(batches)
        while True:
            begin = time.perf_counter()
            batch = next(waiting, None)
            self.seconds += time.perf_counter() - begin
            if batch is None:
                return
            batch, read_seconds, prelearner_seconds = without_seconds(batch)
            self.read_seconds += read_seconds
            self.prelearner_seconds += prelearner_seconds
            self.steps += len(batch)
            self.bytes += sum(column.nbytes for column in batch.columns.values())
            yield batch


def without_seconds(batch: EpisodeBatch) -> tuple[EpisodeBatch, float, float]:
    """(the batch, seconds that reading it took, seconds that the prelearner took)"""
    took = [float(batch[name].sum()) if name in batch else 0.0 for name in SECONDS]
    return without(batch, *SECONDS), took[0], took[1]


class DataLoader(Protocol):
    """The steps of one epoch after the other, in windows that fit in memory."""

    where: str
    """Named in errors."""
    resident: bool
    """One window, the same for all epochs."""
    expected_steps: int | None
    """Of an epoch, of all learners; None: that is not known, or checked while reading."""
    read: ReadSoFar

    def windows(self, epoch: int, first: int = 0) -> Iterator[Steps]:
        """Windows of whole episodes, from number `first` on; together all steps of this learner's shards, each once."""


Read = Callable[[Sequence[int] | None], Iterable[EpisodeBatch]]
"""Numbers of row groups, None: all → their episodes, in this order."""


class ResidentLoader:
    """Steps that stay in memory."""

    resident = True

    def __init__(
        self,
        steps: Steps,
        *,
        where: str = "The dataset",
        expected_steps: int | None = None,
        read: ReadSoFar | None = None,
    ) -> None:
        self._steps = steps
        self.where, self.expected_steps = where, expected_steps
        self.read = read or ReadSoFar()

    def windows(self, epoch: int, first: int = 0) -> Iterator[Steps]:
        if first == 0:
            yield self._steps


def resident(batch: EpisodeBatch, order: ReadingOrder | None = None, shards: Shards = Shards()) -> ResidentLoader:
    """A loader of a whole dataset that is in memory, perhaps for other runs too: it is neither copied nor written to.

    Arguments:
        order: of the row groups that the episodes are from; None: there are none.
    """
    [batch], shard = shards_of([batch], order, 0, shards)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return ResidentLoader(Steps.of(batch).cut(shard, shards.number))


def read_into_memory(
    read: Read,
    order: ReadingOrder | None = None,
    shards: Shards = Shards(),
    *,
    where: str = "The dataset",
    expected_steps: int | None = None,
) -> ResidentLoader:
    """Read a learner's shards into memory.

    Memory: the columns once, and once more while they are joined.

    Arguments:
        order: of all row groups; None: there are none.
        expected_steps: of all shards.
    """
    found: list[EpisodeBatch] = []
    so_far = ReadSoFar()
    expected = None if expected_steps is None else expected_steps // (1 if order is None else shards.world)
    with progress(expected, what="load", unit="step") as bar:
        for batch in so_far.timed(read(None if order is None else order.read_by(shards))):
            found.append(batch)
            bar.to(so_far.steps)
    found, shard = shards_of(found, order, 0, shards)
    if not found:
        found, shard = [any_episode(read, where)], np.array([STAND_IN])
    steps = Steps.of(joined(found, where)).cut(shard, shards.number)
    return ResidentLoader(steps, where=where, expected_steps=expected_steps, read=so_far)


class StreamingLoader:
    """Reads a learner's shards anew each epoch, the row groups in another order, a window of steps at a time.

    Memory: the window that is learned from, the batches of the next one and, while they are joined, once more; what Ray
    prefetches.

    Arguments:
        order: epoch → the order of its row groups; None: there are none, and the order is that of the data.
        window_steps: where there are no row groups, as many steps and the episode that they end in make a window.
    """

    resident = False

    def __init__(
        self,
        read: Read,
        order: Callable[[int], ReadingOrder | None],
        shards: Shards = Shards(),
        *,
        where: str = "The dataset",
        window_steps: int,
        expected_steps: int | None = None,
    ) -> None:
        self.where, self.expected_steps = where, expected_steps
        self._read, self._order, self._shards = read, order, shards
        self._window_steps = window_steps
        self._stand_in: EpisodeBatch | None = None
        self.read = ReadSoFar()

    def windows(self, epoch: int, first: int = 0) -> Iterator[Steps]:
        """One is read and joined while the one before is being learned from."""
        return prefetched(self._windows(epoch, first))

    def _windows(self, epoch: int, first: int) -> Iterator[Steps]:
        order = self._order(epoch)
        found: Iterator[tuple[int, list[EpisodeBatch]]]
        if order is None:
            found = enumerate(windows(self.read.timed(self._read(None)), self._window_steps))
        else:
            found = _by_window(self.read.timed(self._read(order.read_by(self._shards, first))), order, first)
        for number, window in found:
            if number < first:
                continue
            own, shard = shards_of(window, order, number, self._shards)
            if not own:
                self._stand_in = self._stand_in or any_episode(self._read, self.where)
                own, shard = [self._stand_in], np.array([STAND_IN])
            yield Steps.of(joined(own, self.where)).cut(shard, self._shards.number)


def shards_of(
    batches: list[EpisodeBatch], order: ReadingOrder | None, window: int, shards: Shards
) -> tuple[list[EpisodeBatch], np.ndarray]:
    """The episodes of a learner's shards, of all of a window that it read, and their shards (E,) int64.

    If it has none of those, one of the others stands in. Nothing if the window has no episodes.
    """
    batches = [batch for batch in batches if batch.rows]
    if not batches:
        return [], np.zeros(0, np.int64)
    lengths = np.concatenate([batch.lengths for batch in batches])
    place, places = np.zeros(len(lengths), np.int64), 1
    if order is not None:
        numbers = np.concatenate([batch[ROW_GROUP][batch.offsets[:-1]] for batch in batches])
        place, places = order.places_of(numbers)[1], order.in_window(window)
    shard = shards.of_episodes(lengths, place, places)
    own = (shard >= shards.own.start) & (shard < shards.own.stop)
    if not own.any():
        own[0], shard[0] = True, STAND_IN
    cuts = np.cumsum([batch.num_episodes for batch in batches])[:-1]
    parts = zip(batches, np.split(own, cuts), strict=True)
    taken = [batch if chosen.all() else batch.select(chosen) for batch, chosen in parts if chosen.any()]
    return [without(batch, ROW_GROUP) for batch in taken], shard[own]


def any_episode(read: Read, where: str) -> EpisodeBatch:
    """One episode of a dataset.

    Raises:
        EmptyDatasetError: there is none.
    """
    found = next((batch for batch in read(None) if batch.rows), None)
    return joined([] if found is None else [without(found.slice(0, 1), *SECONDS, ROW_GROUP)], where)


def without(batch: EpisodeBatch, *names: str) -> EpisodeBatch:
    """The same without these columns."""
    return replace(batch, columns={name: each for name, each in batch.columns.items() if name not in names})


def _by_window(batches: Iterable[EpisodeBatch], order: ReadingOrder, first: int) -> Iterator[tuple[int, list[EpisodeBatch]]]:
    """Number and episodes of each window from `first` on."""
    number, waiting = first, list[EpisodeBatch]()
    for batch in batches:
        if not batch.rows:
            continue
        found, _ = order.places_of(batch[ROW_GROUP][batch.offsets[:-1]])
        begin = 0
        while begin < len(found):
            stop = int(np.searchsorted(found, found[begin], side="right"))
            while number < found[begin]:
                yield number, waiting
                number, waiting = number + 1, []
            waiting.append(batch.slice(begin, stop))
            begin = stop
    for last in range(number, order.windows):
        yield last, waiting
        waiting = []


def windows(batches: Iterable[EpisodeBatch], size: int, *, of_episodes: bool = False) -> Iterator[list[EpisodeBatch]]:
    """The same episodes in windows, each ending with the episode that fills it: however they came in batches.

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
        while (cut := int(np.searchsorted(before, done + size - held))) < len(before):
            waiting.append(batch.slice(begin, cut))
            yield waiting
            first = False
            waiting, held, begin, done = [], 0, cut, int(before[cut])
        waiting.append(batch.slice(begin, batch.num_episodes))
        held += int(sizes[begin:].sum())
    if held or first:
        yield waiting


def joined(batches: list[EpisodeBatch], where: str) -> EpisodeBatch:
    """A copy of the episodes of all batches, in this order.

    Raises:
        EmptyDatasetError: there are none.
    """
    batches = [batch for batch in batches if batch.rows]
    if not batches:
        raise EmptyDatasetError(f"{where} holds no steps to learn from.")
    first = batches[0].columns.keys()
    if other := next((batch.columns.keys() for batch in batches if batch.columns.keys() != first), None):
        raise SchemaError(f"Some episodes of {where} have the column {', '.join(sorted(other ^ first))} and others do not.")
    return EpisodeBatch.concatenate(batches) if len(batches) > 1 else batches[0].copy()


def check_steps(found: int, expected: int | None, where: str) -> None:
    """Raises a DataError if an epoch had other than the expected steps."""
    if expected not in (None, found):
        raise DataError(
            f"{where} gives {found:,} steps, and {expected:,} when they were counted. Your code has to give the same each "
            "time; if none of yours reads this, its files have changed."
        )
