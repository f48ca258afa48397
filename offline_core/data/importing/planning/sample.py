"""What a plan reads of a source: the first rows of a few files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from offline_core.data.formats.sources.fingerprint import files_of
from offline_core.data.formats.sources.first_rows import FirstRows
from offline_core.data.formats.sources.listing import Listing
from offline_core.data.formats.sources.opening import open_source
from offline_core.data.formats.sources.readers import SOURCE_ROW, FileReader
from offline_core.data.formats.sources.scans import EpisodeFile
from offline_core.data.importing.column_values import SampleRows
from offline_core.data.importing.config import ImportConfig
from offline_core.data.store.location import Location
from offline_core.data.store.parquet_files import read_footer
from offline_core.errors import ConfigError

RUN_FILES = 8
"""Neighbours that are read at the beginning, in the middle and at the end, for ids may come again in the next file."""
MAX_BYTES = 64 * 2**20
"""In memory, of all rows that are read."""
SMALL_BYTES, SMALL_FILES = 4 * 2**20, 200
"""Up to so many bytes and files, all rows are read."""


@dataclass(frozen=True)
class SourceSample:
    """The first rows of some files, in the order of the source."""

    format: str
    files: int
    """The number of files in the source."""
    bytes: int
    episode_files: tuple[Location, ...]
    """The files to read, if they hold episodes."""
    readers: tuple[FirstRows, ...]
    numbers: tuple[int, ...]
    """The numbers of the files that are read, among all files."""
    is_whole: bool
    """All rows are read."""


def sampled(config: ImportConfig, source: Sequence[str]) -> SourceSample:
    """Read a few files of the source.

    Raises:
        ConfigError: there is no such format, there are several, or Ray has to read them.
        EmptyDatasetError: there are no files.
        StorageError: a file cannot be reached.
    """
    if config.source.is_rays:
        raise ConfigError(
            f"{config.source.format} needs Ray, which a plan does not start. Name the files with source.format auto, or import "
            "without a plan: offline import says what it does not find."
        )
    listing = Listing()
    readers = open_source(source, config.pushed_down, listing)
    first = readers[0]
    format = first.format if config.source.format == "auto" and isinstance(first, FileReader) else str(config.source.format)
    size = sum(bytes for reader in readers for _, bytes, _ in files_of(reader, listing))
    is_small = 0 < size <= SMALL_BYTES and len(readers) <= SMALL_FILES
    numbers = [*range(len(readers))] if is_small else chosen(len(readers))
    if isinstance(first, EpisodeFile):
        looked = tuple(reader.location for reader in (readers[number] for number in numbers) if isinstance(reader, EpisodeFile))
        is_whole = len(looked) == len(readers) and all(read_footer(file).num_row_groups < 2 for file in looked)
        return SourceSample(format, len(readers), size, looked, (), tuple(numbers), is_whole)
    held: list[FirstRows] = []
    for number in numbers:
        if sum(table.nbytes for reader in held for table in reader.tables) > MAX_BYTES:
            break
        held.append(FirstRows.of(readers[number], is_whole=is_small))
    is_whole = len(held) == len(readers) and all(reader.is_whole for reader in held)
    return SourceSample(format, len(readers), size, (), tuple(held), tuple(numbers[: len(held)]), is_whole)


def chosen(count: int) -> list[int]:
    """The numbers of the files to read, of so many."""
    if count <= 3 * RUN_FILES:
        return list(range(count))
    middle = count // 2
    runs = (range(RUN_FILES), range(middle, middle + RUN_FILES), range(count - RUN_FILES, count))
    return sorted({number for run in runs for number in run})


def rows_of(readers: Sequence[FirstRows]) -> SampleRows:
    """All rows that could be read."""
    tables = [(number, _without_codes(table)) for number, reader in enumerate(readers) for table in reader.tables]
    names = dict.fromkeys(name for _, table in tables for name in table.column_names if name != SOURCE_ROW)
    file = np.repeat([number for number, _ in tables], [table.num_rows for _, table in tables]).astype(np.int64)
    columns = {name: column for name in names if (column := _joined([table for _, table in tables], name)) is not None}
    return SampleRows(pa.table(columns), file)


def _without_codes(table: pa.Table) -> pa.Table:
    """Replace the codes of categories by their texts: some files hold numbers and a list of texts."""
    for number, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(number, field.name, table[field.name].cast(field.type.value_type))
    return table


def _joined(tables: Sequence[pa.Table], name: str) -> pa.ChunkedArray | None:
    """Nulls where a table lacks the column; None if its types have nothing in common."""
    kinds = {table.schema.field(name).type for table in tables if name in table.column_names}
    kinds -= {pa.null()}
    kind = kinds.pop() if len(kinds) == 1 else _common(kinds)
    if kind is None:
        return None
    chunks: list[pa.Array] = []
    try:
        for table in tables:
            column = (
                _cast(table[name], kind) if name in table.column_names else pa.chunked_array([pa.nulls(table.num_rows, kind)])
            )
            chunks += column.chunks
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return None
    return pa.chunked_array(chunks, kind)


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if isinstance(column.type, pa.FixedShapeTensorType) and column.type != kind:
        column = pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)
    return column.cast(kind)


def _common(kinds: set[pa.DataType]) -> pa.DataType | None:
    if not kinds:
        return pa.null()
    if all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in kinds):
        return pa.float64()
    if not any(pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType) for kind in kinds):
        return pa.large_string()
    widened = {_widened(kind) for kind in kinds}
    return widened.pop() if len(widened) == 1 else None


def _widened(kind: pa.DataType) -> pa.DataType:
    """The same type with all real numbers in 64 bits; tensors as lists."""
    if isinstance(kind, pa.FixedShapeTensorType):
        return _widened(kind.storage_type)
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_widened(kind.value_type), kind.list_size)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_widened(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_widened(field.type)) for field in kind])
    return kind
