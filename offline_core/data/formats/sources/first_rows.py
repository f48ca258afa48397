"""Read only the first rows of a file, however large it is."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from offline_core.data.formats.sources.local_copy import standing_for
from offline_core.data.formats.sources.readers import FileReader
from offline_core.data.formats.sources.step_reader import StepReader, Unreadable
from offline_core.data.formats.sources.text_form import changed_in_utf8
from offline_core.data.store.location import Location
from offline_core.data.store.parquet_files import parquet_errors, read_footer
from offline_core.data.store.storage_errors import storage_errors
from offline_core.errors import DataError, OfflineError

FIRST_ROWS = 4096
TEXT_BYTES = 2**19
"""Of text; more only where that has no whole line."""
COLUMNAR_BYTES = 2**23
"""Of the other formats, as they are in memory."""
READ_BYTES = 2**20
"""Of a column of Parquet at a time."""
MAX_LINE_BYTES = 16 * 2**20


@dataclass(frozen=True)
class FirstRows:
    """The first rows of a reader, in memory; a `StepReader` itself."""

    uri: str
    held: tuple[pa.Table | Unreadable, ...]
    error: DataError | None
    """What reading the file ended with."""
    is_whole: bool
    """These are all of its rows."""

    @classmethod
    def of(cls, reader: StepReader, *, is_whole: bool = False) -> FirstRows:
        """Read up to `FIRST_ROWS`, fewer of wide rows; what cannot be read of them is held, too.

        Arguments:
            is_whole: read all rows.

        Raises:
            ConfigError: the arguments do not fit the file.
            StorageError: the storage cannot be read.
        """
        held: list[pa.Table | Unreadable] = []
        most_rows, most_bytes = (sys.maxsize, sys.maxsize) if is_whole else (FIRST_ROWS, COLUMNAR_BYTES)
        whole = contextlib.nullcontext((reader, False))
        first = reader.cut() if isinstance(reader, FileReader) and not is_whole else whole
        rows, size = 0, 0
        error, is_whole = None, True
        try:
            with first as (shorter, is_cut):
                is_whole = not is_cut
                for batch in shorter.batches():
                    if isinstance(batch, pa.Table):
                        is_whole &= rows + batch.num_rows <= most_rows
                        batch = batch.slice(0, most_rows - rows)
                        rows, size = rows + batch.num_rows, size + batch.nbytes
                    held.append(batch)
                    if rows == most_rows or size > most_bytes:
                        is_whole &= rows < most_rows and size <= most_bytes
                        break
        except DataError as raised:
            error = raised
        return cls(reader.uri, tuple(held), error, is_whole)

    def batches(self) -> Iterator[pa.Table | Unreadable]:
        """See `StepReader`."""
        yield from self.held
        if self.error is not None:
            raise self.error

    def changed(self, change: Callable[[pa.Table], pa.Table]) -> FirstRows:
        """The same rows, each table changed; one of which that raises a `DataError` stays as it is."""
        held = list[pa.Table | Unreadable]()
        for batch in self.held:
            with contextlib.suppress(DataError):
                batch = change(batch) if isinstance(batch, pa.Table) else batch
            held.append(batch)
        return replace(self, held=tuple(held))

    @property
    def tables(self) -> list[pa.Table]:
        return [batch for batch in self.held if isinstance(batch, pa.Table) and batch.num_rows]


def rows_to_read(file: Location) -> int | None:
    """How many rows of a Parquet file to read, None if it has no more."""
    try:
        footer = read_footer(file)
    except OfflineError:
        return None  # reading it raises the error
    groups = [footer.row_group(number) for number in range(min(1, footer.num_row_groups))]
    width = max(1, *(group.total_byte_size // max(1, group.num_rows) for group in groups), 1)
    rows = max(1, min(FIRST_ROWS, COLUMNAR_BYTES // width))
    return rows if footer.num_rows > rows else None


@contextlib.contextmanager
def first_batch(file: Location, rows: int) -> Iterator[Location]:
    """The first rows of a Parquet file, on a local disk; of its pages not many more are read."""
    with tempfile.NamedTemporaryFile() as copy:
        with parquet_errors(file.uri), _streamed(file) as parquet:
            batch = next(parquet.iter_batches(batch_size=rows))
            pq.write_table(pa.Table.from_batches([batch], parquet.schema_arrow), copy.name)
        yield standing_for(file, copy.name)


def _streamed(file: Location) -> pq.ParquetFile:
    """Open a Parquet file without `pre_buffer`, which reads whole row groups."""
    return pq.ParquetFile(file.path, filesystem=file.filesystem, buffer_size=READ_BYTES, pre_buffer=False)


@contextlib.contextmanager
def first_lines(file: Location, encoding: str | None) -> Iterator[tuple[Location, bool]]:
    """(the first lines of a text file, unpacked, on a local disk; whether it has more)."""
    with tempfile.NamedTemporaryFile() as copy:
        with storage_errors("read", file.uri):
            is_cut = _copy_lines(file, encoding, copy)
        copy.flush()
        yield standing_for(file, copy.name), is_cut


def _copy_lines(file: Location, encoding: str | None, into: IO[bytes]) -> bool:
    with file.filesystem.open_input_stream(file.path) as stream:  # decompresses by the file's name
        text = b""
        try:
            while len(text) < TEXT_BYTES or (b"\n" not in text and len(text) < MAX_LINE_BYTES):
                if not (more := stream.read(TEXT_BYTES)):
                    into.write(text)
                    return False
                text += more
            is_cut = bool(stream.read(1))
        except OSError as error:
            if type(error) is not OSError or error.errno is not None:
                raise
            is_cut = True  # damaged from here on, which the import reports
    into.write(changed_in_utf8(_whole_lines, text, encoding, file.uri) if is_cut else text)
    return is_cut


def _whole_lines(text: bytes) -> bytes:
    """Return the text without its last line, and without the lines before that share a quoted value with it."""
    end = text.rfind(b"\n") + 1
    for _ in range(100):
        if end == 0 or text.count(b'"', 0, end) % 2 == 0:
            break
        end = text.rfind(b"\n", 0, end - 1) + 1
    return text[:end] if end else text
