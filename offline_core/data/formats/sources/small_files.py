"""Read many small Parquet files at a time: opening a file takes longer than reading its few rows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from offline_core.data.episodes.arrow import refuse_extension_types
from offline_core.data.episodes.spaces import stated_spaces
from offline_core.data.formats.sources.episode_rows import may_hold_episodes
from offline_core.data.formats.sources.expansion import COLUMNAR, FLOOR_BYTES, Expansion, check_footer
from offline_core.data.formats.sources.local_copy import local_files
from offline_core.data.formats.sources.readers import SOURCE_ROW
from offline_core.data.formats.sources.scans import ParquetFile, frame_bytes
from offline_core.data.formats.sources.step_reader import StepReader
from offline_core.errors import OfflineError

MAX_FILES = 128
MAX_BYTES = 4 * 2**20
"""Of all files that are read together, as they are stored."""


class FilesRows(NamedTuple):
    """The rows of several files."""

    table: pa.Table
    file: np.ndarray
    """(N,) int32: the number of the row's file."""
    row: np.ndarray
    """(N,) int64: the number of the row in its file."""


def small_files(
    readers: Sequence[StepReader], sizes: Sequence[int], which: Iterable[int]
) -> Iterator[tuple[list[int], FilesRows | None]]:
    """(consecutive numbers of readers, the rows of all their files), None for those that are to be read one by one.

    Arguments:
        sizes: bytes that each reader reads.
        which: numbers of the readers to read, in order.
    """
    group: list[int] = []
    for number in which:
        if group and not _may_join(readers, sizes, [*group, number]):
            yield group, _rows(readers, group)
            group = []
        group.append(number)
    if group:
        yield group, _rows(readers, group)


def _may_join(readers: Sequence[StepReader], sizes: Sequence[int], group: list[int]) -> bool:
    first, last = readers[group[0]], readers[group[-1]]
    alike = isinstance(first, ParquetFile) and isinstance(last, ParquetFile) and _choice(first) == _choice(last)
    return alike and len(group) <= MAX_FILES and sum(sizes[number] for number in group) <= MAX_BYTES


def _choice(reader: ParquetFile) -> object:
    """Equal for files that are read in the same way; of others each differs from all."""
    if reader.where is not None or reader.arguments or reader.partition:
        return reader.uri
    return reader.columns, reader.max_expansion


def _rows(readers: Sequence[StepReader], group: list[int]) -> FilesRows | None:
    files = [reader for number in group if isinstance(reader := readers[number], ParquetFile)]
    if len(group) == 1 or len(files) < len(group):
        return None
    errors = (OfflineError, OSError, pa.ArrowException, pl.exceptions.PolarsError, pl.exceptions.PanicException)
    with contextlib.suppress(*errors):  # reading them one by one finds which file it is
        return _read(files, np.array(group, np.int32))
    return None


def _read(files: Sequence[ParquetFile], numbers: np.ndarray) -> FilesRows | None:
    """Read the rows of files together; None if the files differ in their schemas."""
    with local_files([file.location for file in files]) as copies:
        lengths, schema = np.empty(len(files), np.int64), None
        for i, (file, copy) in enumerate(zip(files, copies, strict=True)):
            footer = pq.read_metadata(copy.path)
            own = footer.schema, (footer.metadata or {}).get(b"ARROW:schema")
            schema = schema or own
            if own != schema:
                return None
            lengths[i] = footer.num_rows
            check_footer(
                footer, Expansion(file.uri, copy.filesystem.get_file_info(copy.path).size, file.max_expansion * COLUMNAR)
            )
        rows = pl.scan_parquet([copy.path for copy in copies], glob=False, hive_partitioning=False)
        if may_hold_episodes(rows.collect_schema()):
            return None
        frame = (rows if files[0].columns is None else rows.select(*files[0].columns)).collect()
    if SOURCE_ROW in frame.columns or frame.height != lengths.sum() or frame_bytes(frame) > FLOOR_BYTES:
        return None
    table = frame.to_arrow()
    refuse_extension_types(table.schema, files[0].uri)
    row = np.arange(frame.height) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    spaces = stated_spaces(footer.metadata)
    return FilesRows(table.replace_schema_metadata(spaces), np.repeat(numbers, lengths), row)
