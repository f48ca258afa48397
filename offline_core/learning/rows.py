"""Stored rows that are read once: kept in memory for all epochs, or cut small for a short measurement."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from offline_core.data.datasets.row_groups import READ_SECONDS
from offline_core.data.episodes import columns
from offline_core.data.episodes.batch import run_starts


class RowReader(Protocol):
    """What reads rows instead of the files."""

    def tables(
        self,
        read: Callable[[Sequence[int] | None], Iterable[pa.Table]],
        *,
        numbers: Sequence[int] | None = None,
        together: int = 1,
    ) -> Iterator[pa.Table]:
        """The tables of these numbers, as `read` returns them one by one, so many of them at a time; None: all."""

    def dataset(self, read: Callable[[Sequence[int] | None], Any], *, numbers: Sequence[int] | None = None) -> Any:
        """The blocks of the `ray.data.Dataset` that `read` returns for these numbers; None: all."""


class CachedRows:
    """Reads each table once: into this process, or into Ray's object store for a pool of prelearners.

    Memory: the rows as they are stored, without Parquet's compression. Each of several learners keeps what it has read, in the
    end all of it.
    """

    def __init__(self) -> None:
        self._tables: dict[int, pa.Table] = {}
        self._blocks: dict[int, Any] = {}
        self._all: range | None = None
        """Numbers of what has none: all of it, in its order."""

    def tables(
        self,
        read: Callable[[Sequence[int] | None], Iterable[pa.Table]],
        *,
        numbers: Sequence[int] | None = None,
        together: int = 1,
    ) -> Iterator[pa.Table]:
        found = self._each(self._tables, read, numbers)
        while some := list(itertools.islice(found, together)):
            yield pa.concat_tables(some)

    def dataset(self, read: Callable[[Sequence[int] | None], Any], *, numbers: Sequence[int] | None = None) -> Any:
        import ray.data

        def blocks(missing: Sequence[int] | None) -> list[Any]:
            rows = read(missing)
            rows.context.execution_options.preserve_order = True
            return rows.materialize().to_arrow_refs()  # type: ignore[no-any-return]

        return ray.data.from_arrow_refs(list(self._each(self._blocks, blocks, numbers)))

    def _each(
        self, found: dict[int, Any], read: Callable[[Sequence[int] | None], Iterable[Any]], numbers: Sequence[int] | None
    ) -> Iterator[Any]:
        """What has these numbers, of which only what is missing is read."""
        missing = [number for number in numbers or () if number not in found]
        reading = iter(read(missing)) if missing else iter(())
        if numbers is None and self._all is None:
            for number, value in enumerate(read(None)):
                found[number] = value
                yield value
            self._all = range(len(found))
            return
        for number in self._all or () if numbers is None else numbers:
            if number not in found:
                found[number] = next(reading)
            yield found[number]


class SampleRows:
    """Cuts what is read into tables of 1, 2, 4 … whole episodes, so that a measurement of costly mapping can stop early.

    Arguments:
        cuts: rows are a dataset's, of episodes or steps. Of others only a user's prelearner knows what belongs together, so
            they come as they are read.
    """

    def __init__(self, *, cuts: bool) -> None:
        self._cuts = cuts

    def tables(
        self,
        read: Callable[[Sequence[int] | None], Iterable[pa.Table]],
        *,
        numbers: Sequence[int] | None = None,
        together: int = 1,
    ) -> Iterator[pa.Table]:
        """In the order of `read`, each with its share of the seconds that reading took."""
        begin = time.perf_counter()
        for table in read(numbers):
            took = time.perf_counter() - begin
            for start, stop in _doubled(_starts(table) if self._cuts else np.zeros(1, int), table.num_rows):
                seconds = np.zeros(stop - start, np.float32)
                seconds[:1] = took * (stop - start) / table.num_rows
                yield table.slice(start, stop - start).append_column(READ_SECONDS, pa.array(seconds))
            begin = time.perf_counter()

    def dataset(self, read: Callable[[Sequence[int] | None], Any], *, numbers: Sequence[int] | None = None) -> Any:
        """Not measured: a pool of prelearners."""
        raise NotImplementedError


def _starts(table: pa.Table) -> np.ndarray:
    """Rows at which the table may be cut."""
    if columns.ITEM in table.column_names:
        return np.arange(table.num_rows)
    if columns.EPS_ID in table.column_names:
        return run_starts(table[columns.EPS_ID].combine_chunks())
    return np.zeros(1, int)


def _doubled(starts: np.ndarray, rows: int) -> Iterator[tuple[int, int]]:
    """(start, stop) of 1, 2, 4 … episodes, to the end."""
    edges = [*starts[(2 ** np.arange(len(starts).bit_length()) - 1)].tolist(), rows] if rows else []
    return itertools.pairwise(edges)
