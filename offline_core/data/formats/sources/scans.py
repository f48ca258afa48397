"""Scan Parquet, CSV, NDJSON, Arrow IPC and Avro with Polars, with columns and row filter pushed down.

Polars fails at lines that are not rows, without naming them. Then the other lines are copied, and read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import glob
import io
import json
import os
import re
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Any, NamedTuple, NoReturn

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from offline_core.data.episodes.extension_types import refuse_extension_types
from offline_core.data.episodes.table import stated_spaces
from offline_core.data.formats.sources.expansion import COLUMNAR, Expansion, check_parquet, check_stream, check_text
from offline_core.data.formats.sources.local_copy import local_file
from offline_core.data.formats.sources.located_reader import BATCH_BYTES, LocatedReader
from offline_core.data.formats.sources.partitions import Values
from offline_core.data.formats.sources.step_reader import Unreadable, with_note
from offline_core.data.formats.sources.text_form import UTF8_WITH_MARK, as_utf8, is_utf8, note_on, separators
from offline_core.data.store.location import Location
from offline_core.data.store.storage_errors import storage_errors
from offline_core.errors import ConfigError, CorruptFileError, SchemaError, first_line
from offline_core.runtime.sql import shown, sql_condition
from offline_core.secrets import masked_text

SOURCE_ROW = "_source_row"
"""An additional column: the number of the row in its file, from 0."""

_MEASURED_ROWS = 1000
"""Rows that are measured to choose the rows of a batch."""

_ARROW_FILE = b"ARROW1"
_TEXT = ("csv", "ndjson")
_FILE_PATHS = "include_file_paths"
_ENCODING = "encoding"
TAB_SUFFIXES = (".tsv", ".tab")
_SAME_LINES = frozenset(
    {"separator", "decimal_comma", "null_values", "new_columns", "schema_overrides", "infer_schema_length", "try_parse_dates"}
)
"""With only these arguments, bad lines can be found without Polars."""

_QUOTED = re.compile(rb'"[^"]*"')
_NAME_ENCODING = "if the file is in another encoding, name it by source.arguments: {encoding: cp1252}, for example"
_Numbered = tuple[int, bytes]


def _scan_avro(path: str, *, row_index_name: str | None = None, **arguments: Any) -> pl.LazyFrame:
    """Avro has no scan in Polars: the file is read as a whole."""
    rows = pl.read_avro(path, **arguments).lazy()
    return rows if row_index_name is None else rows.with_row_index(row_index_name)


def _is_stream(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(len(_ARROW_FILE)) != _ARROW_FILE


def _scan_ipc(path: str, **arguments: Any) -> pl.LazyFrame:
    """Files and streams of Arrow; Polars scans files only, and reads streams as a whole."""
    if not _is_stream(path):
        return pl.scan_ipc(path, glob=False, **arguments)
    rows = pl.read_ipc_stream(path, n_rows=arguments.pop("n_rows", None)).lazy()
    row_index_name = arguments.pop("row_index_name", None)
    if arguments:
        raise TypeError(f"streams of Arrow take no {', '.join(arguments)}")
    return rows if row_index_name is None else rows.with_row_index(row_index_name)


# All rows decide the type of a column: a reward may be 1 for ten thousand steps, and 0.5 later.
SCANS: dict[str, Callable[..., pl.LazyFrame]] = {
    "parquet": functools.partial(pl.scan_parquet, glob=False),
    "csv": functools.partial(pl.scan_csv, glob=False, infer_schema_length=None),
    "ndjson": lambda path, **arguments: pl.scan_ndjson(glob.escape(path), **{"infer_schema_length": None} | arguments),
    "ipc": _scan_ipc,
    "avro": _scan_avro,
}


@dataclass(frozen=True)
class ScannedFile(LocatedReader):
    """One file; only the chosen columns and the row groups that can meet the condition are read.

    A remote file is copied to a local disk first, as Polars does not support all filesystems.
    """

    format: str
    """A key of `SCANS`."""
    columns: tuple[str, ...] | None = None
    where: str | None = None
    """SQL condition on the file's own columns."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """More arguments of Polars' scan function, such as `separator`; `include_file_paths` names a column for the URI."""
    partition: Values = field(default_factory=dict)
    """Columns from the names of its folders; columns of the file win."""

    def batches(self) -> Iterator[pa.Table | Unreadable]:
        """See `StepReader`; with the column `SOURCE_ROW`. Lines of text that are not rows become `Unreadable`."""
        with local_file(self.location) as file:
            if self._is_empty(file):
                return
            self._check_expansion(file)
            if self.format in _TEXT:
                with as_utf8(file, self.arguments.get(_ENCODING)) as (text, encoding):
                    yield from self._of_text(text, encoding)
            else:
                yield from self._batches(file)

    def _of_text(self, file: Location, encoding: str | None) -> Iterator[pa.Table | Unreadable]:
        """The rows of a file in UTF-8, which was in `encoding`; the separator is recognised unless it is given."""
        arguments, found = self._arguments_of_utf8, dict[str, Any]()
        if self.format == "csv" and arguments.keys() <= {*_SAME_LINES, _FILE_PATHS}:
            if self.uri.lower().removesuffix(".gz").endswith(TAB_SUFFIXES):
                arguments = {"separator": "\t", **arguments}
            found = separators(file, arguments)
        is_noted = encoding is not None and encoding != UTF8_WITH_MARK and _ENCODING not in self.arguments
        note = note_on(self.format, {_ENCODING: encoding, **found} if is_noted else found)
        for batch in dataclasses.replace(self, arguments={**arguments, **found})._batches(file):
            yield with_note(batch, note) if isinstance(batch, pa.Table) and note is not None else batch

    @property
    def _arguments_of_utf8(self) -> dict[str, Any]:
        """The arguments for the same text in UTF-8."""
        declared = self.arguments.get(_ENCODING)
        is_kept = declared is not None and self.format == "csv" and is_utf8(declared) and str(declared).endswith("lossy")
        return {name: value for name, value in self.arguments.items() if name != _ENCODING or is_kept}

    def _check_expansion(self, file: Location) -> None:
        """Check the expansion before Polars allocates memory."""
        with storage_errors("read", self.uri):
            expansion = self._expansion(file.path)
            if self.format == "parquet":
                check_parquet(file, expansion)
            elif self.format == "ipc" and _is_stream(file.path):
                check_stream(file.path, expansion)
            elif self.format in _TEXT:
                line_end = str(self.arguments.get("eol_char", "\n")).encode() if self.format == "csv" else None
                check_text(file, expansion, line_end=line_end)

    def _expansion(self, path: str) -> Expansion:
        columnar = 1 if self.format in _TEXT else COLUMNAR
        return Expansion(self.uri, os.path.getsize(path), self.max_expansion * columnar)

    def _batches(self, file: Location) -> Iterator[pa.Table | Unreadable]:
        read = 0
        try:
            for batch in self._read(file.path):
                yield batch
                read = batch[SOURCE_ROW][-1].as_py() + 1
            return
        except CorruptFileError as error:
            if self.format not in _TEXT or not self._arguments.keys() <= _SAME_LINES:
                raise
            unread = error
        with tempfile.NamedTemporaryFile() as rest:
            good, bad = self._without_bad_lines(file, rest)
            if not good or not bad:
                raise self._corrupt(bad[0].problem) if bad else unread
            yield from (Unreadable(self.uri, row, 1, CorruptFileError(f"{what}.")) for row, what in bad if row >= read)
            rows_before = np.array([row for row, _ in bad]) - np.arange(len(bad))  # of those that are copied
            for batch in self._read(rest.name):
                copied = batch[SOURCE_ROW].to_numpy()
                rows = copied + np.searchsorted(rows_before, copied, side="right")
                batch = batch.set_column(0, SOURCE_ROW, pa.array(rows)).filter(pa.array(rows >= read))
                if batch.num_rows:
                    yield batch

    def _is_empty(self, file: Location) -> bool:
        """Whether a text file has no bytes, such as an empty log."""
        if self.format not in _TEXT:
            return False
        with storage_errors("read", self.uri):
            return bool(file.filesystem.get_file_info(file.path).size == 0)

    def _read(self, path: str) -> Iterator[pa.Table]:
        with self._errors():
            expansion = self._expansion(path)
            schema = self._scanned(path, self._arguments).collect_schema()
            if SOURCE_ROW in schema:
                raise SchemaError(f"{self.uri} has a column {SOURCE_ROW}, a reserved name; rename it in the file.")
            spaces = stated_spaces(pq.read_metadata(path).metadata) if self.format == "parquet" else None  # Polars drops them
            known = {"schema": schema} if self.format in _TEXT else {}  # otherwise Polars infers it again from all rows
            added = self._added(schema)
            rows = self._scanned(path, {**self._arguments, **known, "row_index_name": SOURCE_ROW}).with_columns(**added)
            schema = pl.Schema({**schema, **pl.LazyFrame().select(**added).collect_schema()})
            present = list(schema)
            wanted = present if self.columns is None else list(self.columns)
            if missing := sorted(set(wanted) - set(present)):
                raise SchemaError(f"{self.uri} has no column {', '.join(missing)}; it has {', '.join(present)}.")
            measured = rows.select(SOURCE_ROW, *wanted).head(_MEASURED_ROWS).collect()
            refuse_extension_types(measured.clear().to_arrow().schema, self.uri)
            if self.format not in _TEXT:
                expansion.add(frame_bytes(measured))
            small = measured.height < _MEASURED_ROWS and frame_bytes(measured) <= BATCH_BYTES
            if (
                small and self.where is None and self.format not in _TEXT
            ):  # all rows were read: RLlib writes thousands of such files
                if measured.height:
                    yield measured.to_arrow().replace_schema_metadata(spaces)
                return
            width = max(1, frame_bytes(measured) // max(1, measured.height))
            if self.where is not None:
                rows = rows.filter(condition_on(self.where, schema, self.uri))
            chosen = rows.select(SOURCE_ROW, *wanted)
            for batch in chosen.collect_batches(chunk_size=max(1, BATCH_BYTES // width), maintain_order=True):
                if batch.height:
                    if self.format not in _TEXT:
                        expansion.add(frame_bytes(batch))
                    yield batch.to_arrow().replace_schema_metadata(spaces)

    @property
    def _arguments(self) -> dict[str, Any]:
        """Arguments for Polars, without the one that would give the path of a local copy."""
        return {name: value for name, value in self.arguments.items() if name != _FILE_PATHS}

    def _added(self, schema: Mapping[str, Any]) -> dict[str, pl.Expr]:
        """Columns to add that the file lacks."""
        values = {name: value for name, value in self.partition.items() if name not in schema}
        if (name := self.arguments.get(_FILE_PATHS)) is not None:
            if not isinstance(name, str) or name in schema or name in values:
                raise ConfigError(f"{_FILE_PATHS} is {name!r}; it must be a name that no column of {self.uri} has.")
            values[name] = self.uri
        return {name: pl.lit(value, pl.Int64 if isinstance(value, int) else pl.String) for name, value in values.items()}

    def _scanned(self, path: str, arguments: Mapping[str, Any]) -> pl.LazyFrame:
        try:
            return SCANS[self.format](path, **arguments)
        except (TypeError, ValueError, OverflowError, RuntimeError) as error:
            raise ConfigError(f"polars.scan_{self.format} does not take these arguments: {self._told(error)}.") from error

    def _without_bad_lines(self, file: Location, into: Any) -> tuple[int, list[BadLine]]:
        """(number of rows copied to `into`, the lines that are not rows)."""
        try:
            return copy_rows(file, self.format, separator=self.arguments.get("separator", ","), into=into)
        except OSError:  # the decompressor fails
            return 0, []

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise errors of Polars as errors that name the file."""
        try:
            yield
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and (type(error) is not OSError or error.errno is not None):
                with storage_errors("read", self.uri):  # storage fails; other OSErrors come from the decompressor
                    raise
            raise self._corrupt(self._told(error)) from error

    def _told(self, error: BaseException) -> str:
        """The first line of an error of Polars, which may repeat arguments."""
        return masked_text(first_line(error), self.arguments)

    def _corrupt(self, what: str) -> CorruptFileError:
        return CorruptFileError(f"{self.uri} cannot be read as {self.format}: {what}. Repair it, replace it or leave it out.")


def condition_on(where: str, schema: Mapping[str, Any], uri: str) -> pl.Expr:
    """The SQL condition, checked on an empty frame.

    Raises:
        ConfigError: it cannot be understood, or used on these columns.
    """
    condition = sql_condition(where)
    try:
        kind = pl.DataFrame(schema={SOURCE_ROW: pl.UInt32, **schema}).select(condition).dtypes[0]
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise ConfigError(f"The condition {shown(where)} cannot be used on {uri}: {first_line(error)}.") from error
    if kind != pl.Boolean:
        raise ConfigError(f"The condition {shown(where)} gives {kind} and not true or false.")
    return condition


def frame_bytes(frame: pl.DataFrame) -> int:
    """Size in Arrow, where a repeated text is stored each time, unlike in Polars."""
    texts = frame.select(
        pl.col(pl.String).str.len_bytes().sum(),
        pl.col(pl.Categorical, pl.Enum).cat.len_bytes().sum(),
        pl.col(pl.Binary).bin.size().sum(),
    )
    return int(frame.estimated_size()) + sum(map(int, texts.row(0)) if texts.width else ())


class BadLine(NamedTuple):
    """A line that is not a row."""

    row: int
    """Its number among the rows."""
    problem: str
    """`line 3 …` and its problem."""


def copy_rows(location: Location, format: str, *, separator: str, into: IO[bytes]) -> tuple[int, list[BadLine]]:
    """Copies the rows of CSV or NDJSON; returns how many, and the lines that are not rows.

    Raises:
        OSError: the file cannot be read.
    """
    good = 0
    bad: list[BadLine] = []
    with location.filesystem.open_input_stream(location.path) as stream:  # decompresses by the file's name
        lines = io.BufferedReader(stream)
        for text, problem in _objects(lines) if format == "ndjson" else _values(lines, separator.encode(), header=into):
            if problem:
                bad.append(BadLine(good + len(bad), problem))
            else:
                into.write(text)
                good += 1
    into.flush()
    return good, bad


def _objects(lines: Iterable[bytes]) -> Iterator[tuple[bytes, str]]:
    """(line, problem or "") of NDJSON, where a blank line is skipped."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            remedy = f"; {_NAME_ENCODING}" if isinstance(error, UnicodeDecodeError) else ""
            yield line, f"line {number} is not JSON: {getattr(error, 'msg', error)}{remedy}"
            continue
        is_object = isinstance(value, dict)
        what = f"is a {type(value).__name__}; each line must be one JSON object, which is one step"
        yield line, "" if is_object else f"line {number} {what}"


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"JSON has no {constant}")


def _values(lines: Iterable[bytes], separator: bytes, *, header: IO[bytes]) -> Iterator[tuple[bytes, str]]:
    """(lines of one row, problem or "") of CSV, where a blank line is a row; the first row goes to `header`."""
    numbered, waiting, width = enumerate(lines, 1), deque[_Numbered](), 0
    while row := _quoted(numbered, waiting):
        number, text = row[0][0], b"".join(line for _, line in row)
        values = _QUOTED.sub(b"", text)
        count = values.count(separator) + 1
        if not width:
            if text.strip():
                width = count
                header.write(text)
            continue
        problem = ""
        try:
            text.decode()
        except UnicodeDecodeError as error:
            problem = f"line {number} is not UTF-8: {error}; {_NAME_ENCODING}"
        if b'"' in values:
            problem = f"line {number} begins a quoted value that does not end"
        elif count > width:
            problem = f"line {number} has {count} values, the header {width}"
        if problem:  # of several lines only the first is bad: a stray quote includes the others
            waiting.extendleft(reversed(row[1:]))
        yield row[0][1] if problem else text, problem


def _quoted(numbered: Iterator[_Numbered], waiting: deque[_Numbered]) -> list[_Numbered]:
    """The next line, with the following ones while a quote is open; empty at the end."""
    row: list[_Numbered] = []
    is_open = False
    while (row == [] or is_open) and (line := waiting.popleft() if waiting else next(numbered, None)):
        row.append(line)
        is_open ^= line[1].count(b'"') % 2 == 1
    return row
