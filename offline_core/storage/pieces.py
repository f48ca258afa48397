"""A dataset in pieces that can be read anywhere, in any order: the row groups of its files, whole episodes each."""

from __future__ import annotations

import functools
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from offline_core.errors import SchemaError
from offline_core.storage.dataset import Dataset
from offline_core.storage.location import Location
from offline_core.storage.parquet_files import open_parquet, parquet_errors, read_footer
from offline_core.storage.reader import schema_of

READERS = 8
AHEAD_BYTES = 64 * 2**20
"""Of pieces that are read before they are asked for: what a network needs to be kept busy."""


READ_SECONDS = "_read_seconds"


@dataclass(frozen=True, slots=True)
class Piece:
    """One row group; small, and may be sent to another process."""

    file: Location
    sha256: str
    """Of the file, to tell it from another one that has taken its place."""
    footer_sha256: str | None
    """See `FileEntry`."""
    number: int
    size_bytes: int
    """Before compression."""

    def read(self, names: Sequence[str]) -> pa.Table:
        """Its rows with these columns.

        Raises:
            CorruptFileError: the file is damaged.
            StorageError: it cannot be read.
        """
        footer = _footer(self.file, self.sha256, self.footer_sha256)
        with parquet_errors(self.file.uri), open_parquet(self.file, footer) as file:
            return file.read_row_group(self.number, columns=list(names))


def read_pieces(pieces: Sequence[Piece], names: Sequence[str], *, timed: bool = False) -> pa.Table:
    """The rows of all of them with these columns, in this order; see `Piece.read`.

    Arguments:
        timed: with the column `READ_SECONDS`, whose sum is how long it took.
    """
    begin = time.perf_counter()
    table = pa.concat_tables([piece.read(names) for piece in pieces])
    if not timed:
        return table
    seconds = np.zeros(table.num_rows, np.float32)
    seconds[:1] = time.perf_counter() - begin
    return table.append_column(READ_SECONDS, pa.array(seconds))


def tables_of(pieces: Sequence[Piece], names: Sequence[str], *, together: int, timed: bool = False) -> Iterator[pa.Table]:
    """`read_pieces` of so many at a time; the next ones are being read while the last is looked at.

    It ends its threads without waiting for them: an error's traceback may hold this until the garbage collector ends it, and
    that may be while a thread starts, which holds a lock that waiting for a thread would want.
    """
    waiting: deque[tuple[Future[pa.Table], int]] = deque()
    pool = ThreadPoolExecutor(READERS)
    read = functools.partial(read_pieces, timed=True) if timed else read_pieces
    try:
        for start in range(0, len(pieces), together):
            part = pieces[start : start + together]
            waiting.append((pool.submit(read, part, names), sum(piece.size_bytes for piece in part)))
            while len(waiting) > 1 and sum(size for _, size in waiting) > AHEAD_BYTES:
                yield waiting.popleft()[0].result()
        while waiting:
            yield waiting.popleft()[0].result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


@functools.lru_cache(maxsize=256)
def _footer(file: Location, sha256: str, footer_sha256: str | None) -> pq.FileMetaData:
    """Read once, however many row groups are."""
    return read_footer(file, footer_sha256)


def pieces(dataset: Dataset, names: Sequence[str]) -> list[Piece]:
    """The pieces of a dataset, in the order of its manifest.

    Raises:
        SchemaError: it lacks one of the columns `names`.
        CorruptFileError: a file is no readable Parquet file.
    """
    present = schema_of(dataset).names
    if missing := [name for name in names if name not in present]:
        raise SchemaError(f"{dataset.location.uri} has no column {', '.join(missing)}; it has {', '.join(present)}.")
    files = [(dataset.location.child(entry.path), entry.sha256, entry.footer_sha256) for entry in dataset.manifest.files]
    with ThreadPoolExecutor() as pool:  # the footers of thousands of files, or of a few far away
        footers = pool.map(lambda file: _footer(*file), files)
        return [
            Piece(*file, number, footer.row_group(number).total_byte_size)
            for file, footer in zip(files, footers, strict=True)
            for number in range(footer.num_row_groups)
        ]
