"""What learners eat: every step of the dataset once an epoch, in an order that is a pure function of (seed, epoch)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from offline_core.ahead import one_ahead
from offline_core.errors import DataError, EmptyDatasetError, SchemaError
from offline_core.learning.steps import Steps
from offline_core.prelearner.layout import IS_STEP, PRELEARNER_SECONDS, STARTS
from offline_core.progress import progress
from offline_core.seeding import derive_seed
from offline_core.storage.pieces import READ_SECONDS

Part = dict[str, np.ndarray]
"""Flat columns, one episode after the other, as a prelearner makes them; Ray may have cut a large one anywhere."""


@dataclass(slots=True)
class ReadSoFar:
    """What reading and prelearning have brought, and how long it took; nothing where somebody else reads."""

    steps: int = 0
    bytes: int = 0
    """In memory."""
    seconds: float = 0.0
    """That its reader waited."""
    read_seconds: float = 0.0
    """Of reading files, in all processes and threads that do."""
    prelearner_seconds: float = 0.0
    """Of mapping what was read, in all processes that do."""

    def since(self, other: ReadSoFar) -> ReadSoFar:
        """What came after `other`."""
        return ReadSoFar(*(getattr(self, each.name) - getattr(other, each.name) for each in fields(self)))

    def timed(self, parts: Iterable[Part]) -> Iterator[Part]:
        """The parts, counted."""
        waiting = iter(parts)
        while True:
            begin = time.perf_counter()
            part = next(waiting, None)
            self.seconds += time.perf_counter() - begin
            if part is None:
                return
            self.steps += int(part[IS_STEP].sum())
            part = dict(part)
            self.read_seconds += _sum(part.pop(READ_SECONDS, None))
            self.prelearner_seconds += _sum(part.pop(PRELEARNER_SECONDS, None))
            self.bytes += sum(column.nbytes for column in part.values())
            yield part


def _sum(seconds: np.ndarray | None) -> float:
    return 0.0 if seconds is None else float(seconds.sum())


class Feed(Protocol):
    """The steps of one epoch after the other, in chunks that fit in memory; whoever computes on them."""

    resident: bool
    """One chunk, the same for all epochs."""
    read: ReadSoFar

    def chunks(self, epoch: int, first: int = 0) -> Iterator[Steps]:
        """Whole episodes each, beginning with the chunk of that number; together all steps of the dataset, each once."""


class ResidentFeed:
    """The whole dataset in memory.

    Memory: the columns once, and once more while they are joined.
    """

    resident = True

    def __init__(self, parts: Iterable[Part], *, where: str = "The dataset", expected_steps: int | None = None) -> None:
        found: list[Part] = []
        self.read = ReadSoFar()
        with progress(expected_steps, what="load", unit="step") as bar:
            for part in self.read.timed(parts):
                found.append(part)
                bar.to(self.read.steps)
        self._steps = joined(found, where)
        check_steps(len(self._steps), expected_steps, where)

    def chunks(self, epoch: int, first: int = 0) -> Iterator[Steps]:
        if first == 0:
            yield self._steps


class StreamingFeed:
    """Reads the dataset anew each epoch, its row groups in another order, a window of steps at a time.

    Memory: the window that is learned from, the next one in parts and, while they are joined, once more; what Ray prefetches.

    Arguments:
        parts: epoch → the dataset's parts, in an order that only depends on the epoch.
        where: named in errors.
        window_steps: as many steps, and the episode that they end in, make a chunk.
        expected_steps: of each epoch, if that is known.
    """

    resident = False

    def __init__(
        self,
        parts: Callable[[int], Iterator[Part]],
        *,
        where: str = "The dataset",
        window_steps: int,
        expected_steps: int | None = None,
    ) -> None:
        self._parts = parts
        self._where = where
        self.window_steps = window_steps
        self._expected_steps = expected_steps
        self.read = ReadSoFar()

    def chunks(self, epoch: int, first: int = 0) -> Iterator[Steps]:
        """One is read and joined while the one before is being learned from."""
        return one_ahead(self._read(epoch, first))

    def _read(self, epoch: int, first: int) -> Iterator[Steps]:
        found = 0
        for number, window in enumerate(windows(self.read.timed(self._parts(epoch)), self.window_steps)):
            found += sum(int(part[IS_STEP].sum()) for part in window)
            if number >= first:
                yield joined(window, self._where)
        check_steps(found, self._expected_steps, self._where)


def windows(parts: Iterable[Part], size: int, *, of: str = IS_STEP) -> Iterator[list[Part]]:
    """The same rows, cut where the first episode begins after so many steps: however they came in parts.

    At least one window, and the last one may be shorter.

    Arguments:
        of: the flags that are counted; `STARTS` for windows of so many episodes.
    """
    waiting: list[Part] = []
    held = 0
    first = True
    for part in parts:
        starts = np.flatnonzero(part[STARTS])
        before = (np.cumsum(part[of]) - part[of])[starts]  # steps of this part before each of its episodes
        begin = done = 0
        while (cut := int(np.searchsorted(before, done + size - held))) < len(starts):
            waiting.append({name: column[begin : starts[cut]] for name, column in part.items()})
            yield waiting
            first = False
            waiting, held, begin, done = [], 0, int(starts[cut]), int(before[cut])
        waiting.append({name: column[begin:] for name, column in part.items()})
        held += int(part[of][begin:].sum())
    if held or first:
        yield waiting


def joined(parts: list[Part], where: str) -> Steps:
    """The steps of all parts, in this order.

    Raises:
        EmptyDatasetError: there are none.
    """
    if not any(part[IS_STEP].any() for part in parts):
        raise EmptyDatasetError(f"{where} holds no steps to learn from.")
    parts = [part for part in parts if len(part[IS_STEP])]
    if other := next((part for part in parts if part.keys() != parts[0].keys()), None):
        differ = ", ".join(sorted(other.keys() ^ parts[0].keys()))
        raise SchemaError(f"Some parts of {where} have the column {differ} and others do not.")
    tensors = {name: torch.from_numpy(np.concatenate([part[name] for part in parts])) for name in parts[0]}
    return Steps.of(tensors)


def check_steps(found: int, expected: int | None, where: str) -> None:
    """An epoch has brought as many steps as the others.

    Raises:
        DataError: it has not.
    """
    if expected not in (None, found):
        raise DataError(
            f"{where} gives {found:,} steps, and {expected:,} when they were counted. Code of your own has to give the same "
            "each time; if none reads this, its files are not what they were."
        )


def batches(units: Tensor, size: int, *, seed: int, epoch: int, chunk: int, replacement: bool) -> tuple[Tensor, ...]:
    """The units of a chunk in global batches of `size`, the last one shorter; a function of the arguments alone.

    Arguments:
        replacement: draw as many units as there are, each anew from all of them.
    """
    generator = torch.Generator().manual_seed(derive_seed(seed, "epoch", epoch, chunk))
    if replacement:
        order = torch.randint(len(units), (len(units),), generator=generator)
    else:
        order = torch.randperm(len(units), generator=generator)
    return tuple(units[order].split(size))
