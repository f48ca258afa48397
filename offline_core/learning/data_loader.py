"""The data loader: every step of the dataset once an epoch, in an order that is a pure function of (seed, epoch)."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from offline_core.datasets.row_groups import READ_SECONDS
from offline_core.episodes import EpisodeBatch
from offline_core.errors import DataError, EmptyDatasetError, SchemaError
from offline_core.learning.steps import Steps
from offline_core.prelearner.mapper import PRELEARNER_SECONDS
from offline_core.runtime.prefetch import prefetched
from offline_core.runtime.progress import progress
from offline_core.runtime.seeding import derive_seed

SECONDS = (READ_SECONDS, PRELEARNER_SECONDS)


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
    return replace(batch, columns={name: each for name, each in batch.columns.items() if name not in SECONDS}), took[0], took[1]


class DataLoader(Protocol):
    """The steps of one epoch after the other, in windows that fit in memory."""

    resident: bool
    """One window, the same for all epochs."""
    read: ReadSoFar

    def windows(self, epoch: int, first: int = 0) -> Iterator[Steps]:
        """Windows of whole episodes, from number `first` on; together all steps of the dataset, each once."""


class ResidentLoader:
    """The whole dataset in memory, as another loader read it.

    Memory: none but what algorithms add. The arrays may be those of other runs, and such that cannot be written to.
    """

    resident = True

    def __init__(self, batch: EpisodeBatch) -> None:
        self.read = ReadSoFar()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            self._steps = Steps.of(batch)

    def windows(self, epoch: int, first: int = 0) -> Iterator[Steps]:
        if first == 0:
            yield self._steps


class InMemoryLoader(ResidentLoader):
    """Reads the whole dataset into memory.

    Memory: the columns once, and once more while they are joined.
    """

    def __init__(
        self, batches: Iterable[EpisodeBatch], *, where: str = "The dataset", expected_steps: int | None = None
    ) -> None:
        found: list[EpisodeBatch] = []
        read = ReadSoFar()
        with progress(expected_steps, what="load", unit="step") as bar:
            for batch in read.timed(batches):
                found.append(batch)
                bar.to(read.steps)
        super().__init__(joined(found, where))
        self.read = read
        check_steps(len(self._steps), expected_steps, where)


class StreamingLoader:
    """Reads the dataset anew each epoch, its row groups in another order, a window of steps at a time.

    Memory: the window that is learned from, the batches of the next one and, while they are joined, once more; what Ray
    prefetches.

    Arguments:
        batches: epoch → the dataset's batches, in an order that only depends on the epoch.
        where: named in errors.
        window_steps: as many steps, and the episode that they end in, make a window.
        expected_steps: of each epoch, if that is known.
    """

    resident = False

    def __init__(
        self,
        batches: Callable[[int], Iterator[EpisodeBatch]],
        *,
        where: str = "The dataset",
        window_steps: int,
        expected_steps: int | None = None,
    ) -> None:
        self._batches = batches
        self._where = where
        self.window_steps = window_steps
        self._expected_steps = expected_steps
        self.read = ReadSoFar()

    def windows(self, epoch: int, first: int = 0) -> Iterator[Steps]:
        """One is read and joined while the one before is being learned from."""
        return prefetched(self._read(epoch, first))

    def _read(self, epoch: int, first: int) -> Iterator[Steps]:
        found = 0
        for number, window in enumerate(windows(self.read.timed(self._batches(epoch)), self.window_steps)):
            found += sum(map(len, window))
            if number >= first:
                yield Steps.of(joined(window, self._where))
        check_steps(found, self._expected_steps, self._where)


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


def batches(indices: Tensor, size: int, *, seed: int, epoch: int, window: int, replacement: bool) -> tuple[Tensor, ...]:
    """The sample indices of a window in global batches of `size`, the last one shorter; a function of the arguments alone.

    Arguments:
        replacement: draw as many as there are, each anew from all of them.
    """
    generator = torch.Generator().manual_seed(derive_seed(seed, "epoch", epoch, window))
    if replacement:
        order = torch.randint(len(indices), (len(indices),), generator=generator)
    else:
        order = torch.randperm(len(indices), generator=generator)
    return tuple(indices[order].split(size))
