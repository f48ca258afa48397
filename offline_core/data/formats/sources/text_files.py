"""Read CSV and JSON lines by Polars, in any encoding.

Polars fails at lines that are not rows, without naming them. Then the other lines are copied, and read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import glob
import io
import itertools
import json
import re
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any, ClassVar, NoReturn, Self

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from offline_core.data.formats.sources.expansion import Expansion, check_text
from offline_core.data.formats.sources.first_rows import first_lines
from offline_core.data.formats.sources.local_copy import local_file, standing_for
from offline_core.data.formats.sources.readers import SOURCE_ROW, reader
from offline_core.data.formats.sources.scans import FILE_PATHS, OF_SCANS, ScannedFile
from offline_core.data.formats.sources.step_reader import Unreadable, with_empty_rows, with_note
from offline_core.data.formats.sources.text_form import (
    UTF8_WITH_MARK,
    as_utf8,
    doubtful_points,
    first_cells,
    is_utf8,
    note_on,
    note_on_points,
    note_on_repeated,
    note_on_thousands,
    note_on_twice,
    note_on_zeros,
    padded_columns,
    separators,
    thousands,
)
from offline_core.data.store.location import Location
from offline_core.data.store.storage_errors import storage_errors
from offline_core.errors import ConfigError, CorruptFileError
from offline_core.runtime.units import count_text

_ENCODING = "encoding"
_TABS = (".tsv", ".tab")
_PACKED = ("", ".gz", ".zst")
_OF_TEXT = f"{OF_SCANS} schema schema_overrides infer_schema_length ignore_errors batch_size encoding"
_OF_CSV = (
    "has_header separator comment_prefix quote_char skip_rows skip_lines null_values empty_string_is_null infer_schema "
    "skip_rows_after_header try_parse_dates eol_char new_columns truncate_ragged_lines raise_if_empty decimal_comma "
    "missing_utf8_is_empty_string"
)
_OVERRIDES = "schema_overrides"
_OF_TYPES = ("schema", _OVERRIDES)
_TYPES = ("String", "Boolean", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64", "Float32", "Float64")
_SAME_LINES = frozenset(
    {"separator", "decimal_comma", "null_values", "new_columns", "schema_overrides", "infer_schema_length", "try_parse_dates"}
)
"""With only these arguments, the first lines say what the others are."""
_PLAIN_LINES = _SAME_LINES | {"skip_lines", "has_header"}
"""With only these, bad lines can be found without Polars."""
_CUT_SEEN = _PLAIN_LINES | {"infer_schema", "low_memory", _ENCODING}
"""With only these, a last line that was cut is seen."""

_QUOTED = re.compile(rb'"[^"]*"')
_NAME_IN_JSON = re.compile(rb'"([^"]*)"\s*:')
_NAME_ENCODING = "if the file is in another encoding, name it by source.arguments: {encoding: cp1252}, for example"
_Numbered = tuple[int, bytes]
_HEAD_BYTES = 1024
_COUNTED_BYTES = 2**20
MANY_NAMES = 1000
"""In JSON; with fewer, the rows of a file cannot have many more values than it has bytes."""
JSON_SUFFIXES = tuple(f".{kind}{packed}" for kind in ("json", "jsonl", "ndjson") for packed in _PACKED)


class TextFile(ScannedFile):
    """Lines that are not rows become `Unreadable`."""

    is_text: ClassVar[bool] = True

    def read(self) -> Iterator[pa.Table | Unreadable]:
        """See `FileReader`; with the column `SOURCE_ROW`."""
        with local_file(self.location) as local:
            file = standing_for(self.location, local.path)
            with storage_errors("read", self.uri):
                if file.filesystem.get_file_info(file.path).size == 0:  # an empty log
                    return
                self.check_expansion(file, self.expansion(file.path))
            with as_utf8(file, self.arguments.get(_ENCODING)) as (text, encoding):
                recognised = self.recognised(text)
                is_noted = encoding is not None and encoding != UTF8_WITH_MARK and _ENCODING not in self.arguments
                note = note_on(self.format, {_ENCODING: encoding, **recognised} if is_noted else recognised)
                arguments = {**self.of_utf8(), **recognised}
                cells = first_cells(text, arguments) if self.format == "csv" else {}
                repeated = note_on_repeated(text) if self.format == "ndjson" else None
                padded, doubtful = padded_columns(cells), doubtful_points(cells, arguments)
                for batch in dataclasses.replace(self, arguments=arguments)._rows(text):
                    if isinstance(batch, pa.Table):
                        notices = [note, repeated, note_on_twice(batch.column_names), note_on_zeros(padded, batch)]
                        for notice in filter(None, (*notices, note_on_points(doubtful, batch, arguments))):
                            batch = with_note(batch, notice)
                    yield batch

    def recognised(self, text: Location) -> dict[str, Any]:
        """Arguments that its first lines give."""
        return {}

    def of_utf8(self) -> dict[str, Any]:
        """The arguments for the same text in UTF-8."""
        return {name: value for name, value in self.arguments.items() if name != _ENCODING}

    @property
    def scan_arguments(self) -> dict[str, Any]:
        """See `ScannedFile`; types may be given by their names in Polars, as in YAML."""
        arguments = super().scan_arguments
        named = {name: arguments[name] for name in _OF_TYPES if isinstance(arguments.get(name), dict)}
        return arguments | {
            name: {column: _type(given, name) for column, given in types.items()} for name, types in named.items()
        }

    def check_expansion(self, file: Location, expansion: Expansion) -> None:
        check_text(file, expansion, line_end=None)

    def rows_of(self, lines: Iterable[bytes], header: IO[bytes]) -> Iterator[tuple[bytes, str]]:
        """(lines of a row, its problem or "") of a text in UTF-8."""
        raise NotImplementedError

    def ends_within_a_line(self, file: Location) -> bool:
        """Whether a text in UTF-8 was cut within its last line, as a writer that stopped leaves it."""
        return False

    @contextlib.contextmanager
    def cut(self) -> Iterator[tuple[Self, bool]]:
        with first_lines(self.location, self.arguments.get(_ENCODING)) as (file, is_cut):
            yield dataclasses.replace(self, location=file), is_cut

    def _rows(self, file: Location) -> Iterator[pa.Table | Unreadable]:
        read = 0
        try:
            if may_be_cut := self.ends_within_a_line(file):
                raise self.corrupt("it ends within its last line")
            for batch in self.tables(file.path):
                yield batch
                read = batch[SOURCE_ROW][-1].as_py() + 1 if batch.num_rows else read
            return
        except CorruptFileError as error:
            if not self.scan_arguments.keys() <= _PLAIN_LINES:
                raise
            unread = error
        with tempfile.NamedTemporaryFile() as rest:
            good, bad = self._without_bad_lines(file, rest)
            if may_be_cut and not bad:  # a last line that is no row: the header, or one that is skipped
                yield from self.tables(file.path)
                return
            if not good or not bad:
                raise self.corrupt(bad[0][1]) if bad else unread
            yield from (Unreadable(self.uri, row, 1, CorruptFileError(f"{what}.")) for row, what in bad if row >= read)
            rows_before = np.array([row for row, _ in bad]) - np.arange(len(bad))  # of those that are copied
            arguments = {name: value for name, value in self.arguments.items() if name != "skip_lines"}
            for batch in dataclasses.replace(self, arguments=arguments).tables(rest.name):
                copied = batch[SOURCE_ROW].to_numpy()
                rows = copied + np.searchsorted(rows_before, copied, side="right")
                batch = batch.set_column(0, SOURCE_ROW, pa.array(rows)).filter(pa.array(rows >= read))
                if batch.num_rows:
                    yield batch

    def _without_bad_lines(self, file: Location, into: IO[bytes]) -> tuple[int, list[tuple[int, str]]]:
        """(number of rows copied to `into`, (number of the row, its problem) of each line that is not a row)."""
        good, bad = 0, list[tuple[int, str]]()
        with contextlib.suppress(OSError), file.filesystem.open_input_stream(file.path) as stream:  # unpacks by the file's name
            for text, problem in self.rows_of(io.BufferedReader(stream), into):
                if problem:
                    bad.append((good + len(bad), problem))
                else:
                    into.write(text)
                    good += 1
            into.flush()
            return good, bad
        return 0, []


# All rows decide the type of a column: a reward may be 1 for ten thousand steps, and 0.5 later.


@reader(
    "csv",
    suffixes=[f"{kind}{packed}" for kind in (".csv", *_TABS) for packed in _PACKED],
    arguments=f"{_OF_TEXT} {_OF_CSV}",
)
@dataclass(frozen=True)
class CsvFile(TextFile):
    """The separator and decimal commas are recognised unless they are given."""

    def tables(self, path: str) -> Iterator[pa.Table]:
        """See `ScannedFile`; without rows that have no value: blank lines, and separators alone, as spreadsheets write them."""
        added, empty = {SOURCE_ROW, *self._added(())}, 0
        table = None
        for table in super().tables(path):
            values = [table[name] for name in table.column_names if name not in added]
            if values and all(column.null_count for column in values):
                is_empty = functools.reduce(pc.and_, (column.is_null() for column in values))
                table = table.filter(pc.invert(is_empty))
                empty += len(is_empty) - table.num_rows
            if table.num_rows:
                yield with_empty_rows(table, empty)
                empty = 0
        if table is not None and empty:
            yield with_empty_rows(table.slice(0, 0), empty)

    def scan(self, path: str, **arguments: Any) -> pl.LazyFrame:
        return pl.scan_csv(path, glob=False, **{"infer_schema_length": None} | arguments)

    def recognised(self, text: Location) -> dict[str, Any]:
        arguments = self.of_utf8()
        if not arguments.keys() <= {*_SAME_LINES, FILE_PATHS}:
            return {}
        return separators(text, arguments)

    def understood(self, rows: pl.LazyFrame, schema: pl.Schema) -> tuple[pl.LazyFrame, pl.Schema, str | None]:
        """See `ScannedFile`: beside decimal commas points separate thousands in the columns that show it."""
        rows, schema, said = super().understood(rows, schema)
        arguments = self.scan_arguments
        if not arguments.get("decimal_comma") or "schema" in arguments or arguments.get("infer_schema") is False:
            return rows, schema, said
        texts = [name for name, kind in schema.items() if kind == pl.String and name not in arguments.get(_OVERRIDES, {})]
        kinds = thousands(rows, texts)
        if not kinds:
            return rows, schema, said
        numbers = {
            name: pl.col(name).str.strip_chars().str.replace_all(".", "", literal=True).str.replace(",", ".", literal=True)
            for name in kinds
        }
        rows = rows.with_columns(**{name: number.cast(kinds[name], strict=False) for name, number in numbers.items()})
        return rows, pl.Schema({**schema, **kinds}), " ".join(filter(None, (said, note_on_thousands(kinds))))

    def of_utf8(self) -> dict[str, Any]:
        declared = self.arguments.get(_ENCODING)
        is_kept = declared is not None and is_utf8(declared) and str(declared).endswith("lossy")
        arguments = super().of_utf8() | ({_ENCODING: declared} if is_kept else {})
        is_tabs = self.uri.lower().endswith(tuple(f"{tab}{packed}" for tab in _TABS for packed in _PACKED))
        return {"separator": "\t", **arguments} if is_tabs and arguments.keys() <= {*_SAME_LINES, FILE_PATHS} else arguments

    def check_expansion(self, file: Location, expansion: Expansion) -> None:
        check_text(file, expansion, line_end=str(self.arguments.get("eol_char", "\n")).encode())

    def ends_within_a_line(self, file: Location) -> bool:
        """See `TextFile`: the last line has no end, and fewer values than the one before it, which Polars takes for nulls."""
        if not self.scan_arguments.keys() <= _CUT_SEEN:
            return False
        lines = [b"", *_end_of(file).split(b"\n")[-2:]]
        separator = self.arguments.get("separator", ",").encode()
        before, last = (_QUOTED.sub(b"", line) for line in lines[-2:])
        has_open_quote = b'"' in before + last  # of a value of several lines, or one that Polars finds to be cut
        return bool(last.strip()) and not has_open_quote and last.count(separator) < before.count(separator)

    def rows_of(self, lines: Iterable[bytes], header: IO[bytes]) -> Iterator[tuple[bytes, str]]:
        return _values(
            lines,
            self.arguments.get("separator", ",").encode(),
            header=header if self.arguments.get("has_header", True) else None,
            skipped=self.arguments.get("skip_lines", 0),
        )


@reader("ndjson", suffixes=JSON_SUFFIXES, arguments=_OF_TEXT)
@dataclass(frozen=True)
class JsonFile(TextFile):
    """An object a line, or one list of objects."""

    def scan(self, path: str, **arguments: Any) -> pl.LazyFrame:
        arguments = {"infer_schema_length": None} | arguments
        if not _is_list(path):
            return pl.scan_ndjson(glob.escape(path), **arguments)
        rows, row_index_name = arguments.pop("n_rows", None), arguments.pop("row_index_name", None)
        with pa.input_stream(path) as stream:  # unpacks by the file's name
            text = stream.read()
        self._check_list(path, text)
        frame = pl.read_json(io.BytesIO(text), **arguments).lazy()
        frame = frame if rows is None else frame.head(rows)
        return frame if row_index_name is None else frame.with_row_index(row_index_name)

    def check_columns(self, path: str, schema: pl.Schema) -> None:
        """Each row gets a value of every name that any row has: a megabyte with other names in each line becomes gigabytes."""
        if len(schema) > MANY_NAMES and not _is_list(path):
            with pa.input_stream(path) as stream:
                lines = sum(text.count(b"\n") for text in iter(lambda: stream.read(_COUNTED_BYTES), b""))
            self.expansion(path).add(lines * len(schema))

    def _check_list(self, path: str, text: bytes) -> None:
        """Check the expansion of a JSON list, which Polars reads as a whole, names and rows at once."""
        expansion, objects = self.expansion(path), text.count(b"{")
        if objects * text.count(b":") > expansion.limit:
            expansion.add(objects * len(set(_NAME_IN_JSON.findall(text))))

    @contextlib.contextmanager
    def cut(self) -> Iterator[tuple[Self, bool]]:
        """The first lines, but of a list, whose end has to be there, all."""
        with super().cut() as (shorter, is_cut):
            yield (self, False) if is_cut and _is_list(shorter.location.path) else (shorter, is_cut)

    def rows_of(self, lines: Iterable[bytes], header: IO[bytes]) -> Iterator[tuple[bytes, str]]:
        return _objects(lines)


def _type(given: Any, argument: str) -> Any:
    """The type of Polars of a name, such as String; what is no name, as it is.

    Raises:
        ConfigError: a text file has no values of such a type.
    """
    if not isinstance(given, str):
        return given
    if given not in _TYPES:
        raise ConfigError(f"{argument} has the type {given!r}; types of text files are {', '.join(_TYPES)}.")
    return getattr(pl, given)


def _end_of(file: Location) -> bytes:
    """The last bytes of a text, unpacked by the file's name, of a megabyte at least; nothing of one that is damaged."""
    before = last = b""
    with contextlib.suppress(OSError):
        if not file.path.endswith(_PACKED[1:]):
            with file.filesystem.open_input_file(file.path) as stream:
                stream.seek(max(0, stream.size() - _COUNTED_BYTES))
                return bytes(stream.read())
        with file.filesystem.open_input_stream(file.path) as stream:
            while more := stream.read(_COUNTED_BYTES):
                before, last = last, more
        return before + last
    return b""


def _is_list(path: str) -> bool:
    with contextlib.suppress(OSError), pa.input_stream(path) as stream:
        return bool(stream.read(_HEAD_BYTES).lstrip().startswith(b"["))
    return False


def _objects(lines: Iterable[bytes]) -> Iterator[tuple[bytes, str]]:
    """(line, problem or "") of NDJSON, where a blank line is skipped; all lines have the same kinds of values at each name."""
    first = dict[str, tuple[str, int]]()
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
        kinds = dict(_kinds(value)) if is_object else {}
        others = [name for name, kind in kinds.items() if not _are_alike(kind, first.setdefault(name, (kind, number))[0])]
        if others:
            kind, earlier = first[others[0]]
            what = f"has {kinds[others[0]]} as {others[0]!r}, where line {earlier} has {kind}; write them in one way"
        yield line, f"line {number} {what}" if others or not is_object else ""


def _kinds(value: Mapping[str, Any], inside: str = "") -> Iterator[tuple[str, str]]:
    """(the path of each value of an object that is no null, which kind of value it is)."""
    for name, part in value.items():
        if isinstance(part, dict):
            yield from ((f"{inside}{name}", "an object"), *_kinds(part, f"{inside}{name}."))
        elif part is not None:
            yield f"{inside}{name}", _KINDS[type(part)]


_KINDS = {list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}


def _are_alike(one: str, other: str) -> bool:
    """Whether one column holds both kinds of values: beside texts others become texts."""
    return one == other or "text" in (one, other)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"JSON has no {constant}")


def _values(
    lines: Iterable[bytes], separator: bytes, *, header: IO[bytes] | None, skipped: int = 0
) -> Iterator[tuple[bytes, str]]:
    """(lines of a row, problem or "") of CSV, where a blank line is a row; the first goes to `header`, if there is one."""
    numbered, waiting, width, before = itertools.islice(enumerate(lines, 1), skipped, None), deque[_Numbered](), 0, 0
    while row := _quoted(numbered, waiting):
        number, text = row[0][0], b"".join(line for _, line in row)
        values = _QUOTED.sub(b"", text)
        count = values.count(separator) + 1
        if not width:
            width = count if text.strip() else 0
            if width and header is not None:
                header.write(text)
                before = count
            if header is not None or not width:
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
        elif count < before and text.strip() and not text.endswith(b"\n"):
            there = count_text(count, "value")
            problem = f"line {number} has {there} and no end, the line before it {before}: the file was cut there"
        before = before if problem else count
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
