"""Stored rows for a short measurement: the first ones, few at a time."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offline_core.episodes import columns
from offline_core.learning.kept_rows import KeptRows
from offline_core.storage.pieces import READ_SECONDS


class SampleRows(KeptRows):
    """Keeps nothing: cuts what is read into parts of 1, 2, 4 … whole episodes, so that costly mapping can stop early.

    Arguments:
        cuts: rows are a dataset's, of episodes or steps; of others only a prelearner of the user's own knows what belongs
            together, so they come as they are read.
    """

    def __init__(self, *, cuts: bool) -> None:
        super().__init__()
        self._cuts = cuts

    def tables(
        self, read: Callable[[], Iterable[pa.Table]], *, order: Sequence[int] | None = None, together: int = 1
    ) -> Iterator[pa.Table]:
        """Parts of what `read` gives, in its own order, each with its share of the seconds that reading took."""
        begin = time.perf_counter()
        for table in read():
            took = time.perf_counter() - begin
            for start, stop in _doubled(_starts(table) if self._cuts else np.zeros(1, int), table.num_rows):
                seconds = np.zeros(stop - start, np.float32)
                seconds[:1] = took * (stop - start) / table.num_rows
                yield table.slice(start, stop - start).append_column(READ_SECONDS, pa.array(seconds))
            begin = time.perf_counter()


def _starts(table: pa.Table) -> np.ndarray:
    """Rows at which the table may be cut."""
    if columns.ITEM in table.column_names:
        return np.arange(table.num_rows)
    if columns.EPS_ID not in table.column_names:
        return np.zeros(1, int)
    ids = table[columns.EPS_ID].combine_chunks()
    changes = pc.not_equal(ids.slice(1), ids.slice(0, max(0, len(ids) - 1))).to_numpy(zero_copy_only=False)
    return np.append(0, np.flatnonzero(changes) + 1)


def _doubled(starts: np.ndarray, rows: int) -> Iterator[tuple[int, int]]:
    """(start, stop) of 1, 2, 4 … episodes, to the end."""
    edges = [*starts[(2 ** np.arange(len(starts).bit_length()) - 1)].tolist(), rows] if rows else []
    return itertools.pairwise(edges)
