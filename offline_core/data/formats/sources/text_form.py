"""Recognise how a text file is written: its encoding, and the separator and decimal comma of CSV."""

from __future__ import annotations

import codecs
import contextlib
import csv
import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl
import pyarrow as pa

from offline_core.data.episodes.arrow import is_text
from offline_core.data.formats.sources.local_copy import standing_for
from offline_core.data.formats.sources.step_reader import Recognised
from offline_core.data.store.location import Location
from offline_core.data.store.storage_errors import storage_errors
from offline_core.errors import ConfigError, CorruptFileError

HEAD_BYTES = 2**16
"""Of a file, to recognise its form by."""
_COPY_BYTES = 2**20
_SEPARATORS = (",", ";", "\t", "|", " ")
"""The likelier ones first."""
UTF8_WITH_MARK = "utf-8-sig"
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    codecs.BOM_UTF8: UTF8_WITH_MARK,
}
_EXCELS = re.compile("sep=(.)")
"""A first line by which Excel knows the separator."""
_QUOTED = re.compile(r'"[^"]*"')
_A_NUMBER = re.compile(r"[+-]?(\d+[.,]?\d*|[.,]\d+)([eE][+-]?\d+)?|nan|inf", re.IGNORECASE)
MISSING = ("NA", "N/A", "#N/A", "NULL", "Null", "null", "None", "none", "nil", "n/a", "na", "-", "--", "?", ".")
"""What programs write where a number is missing."""
MIN_VALUES = 2
"""A first line of fewer numbers may be names."""
_DECIMAL_COMMA, _DECIMAL_POINT = re.compile(r"\s*[+-]?\d+,\d+\s*"), re.compile(r"\s*[+-]?\d*\.\d+\s*")
_SURE_DECIMAL_COMMA = re.compile(r"\s*[+-]?(?:0,\d+|\d{4,},\d+|\d+,(?:\d{1,2}|\d{4,}))\s*")
"""What is no thousands with a comma between them."""
_WITH_COMMA = re.compile(r"\s*[+-]?\d+(?:,\d+)?\s*")
_MAY_BE_THOUSANDS, _UP_TO_THOUSAND = re.compile(r"\s*[+-]?[1-9]\d{0,2}\.\d{3}\s*"), re.compile(r"\s*[+-]?\d{1,3}\s*")
_IN_THOUSANDS = r"^\s*[+-]?(?:0|[1-9]\d*|[1-9]\d{0,2}(?:\.\d{3})+)(?:,\d+)?\s*$"
"""A number with a decimal comma, and points between its thousands or none."""
_SURE_THOUSANDS = r"^\s*[+-]?[1-9]\d{0,2}(?:(?:\.\d{3})+,\d+|(?:\.\d{3}){2,})\s*$"
"""Such a number whose points can be nothing else: with a comma as well, or two of them."""
_LIKE_ADDRESS = r"(?:\.\d{3}){3}"
_LIKE_ID = r"^\D*(?:\d[.,]?){16}"
"""More digits than a number of 64 bits keeps."""
_CANDIDATE_ROWS = 1000
"""Rows that decide which columns of text are looked at in all rows."""


def is_utf8(declared: str) -> bool:
    """Whether Polars reads it itself; `utf8-lossy` is its own name for UTF-8 whose wrong bytes are replaced.

    Raises:
        ConfigError: there is no such encoding of text.
    """
    try:
        codec = codecs.lookup(declared.removesuffix("-lossy"))
        if isinstance(codec.incrementaldecoder().decode(b""), str):
            return codec.name == "utf-8"
    except (LookupError, TypeError, AttributeError) as error:
        raise ConfigError(f"There is no encoding {declared!r}, such as utf-16, cp1252 or latin-1.") from error
    raise ConfigError(f"{declared} is no encoding of text, such as utf-16, cp1252 or latin-1.")


def encoding_of(head: bytes, declared: str | None) -> str | None:
    """The encoding by the first bytes, or the declared one; None: UTF-8."""
    if declared is not None:
        return None if is_utf8(declared) else declared
    if (marked := next((name for mark, name in _MARKS.items() if head.startswith(mark)), None)) is not None:
        return marked
    head = head[: len(head) // 2 * 2]
    for name, zeros, others in (("utf-16-le", head[1::2], head[::2]), ("utf-16-be", head[::2], head[1::2])):
        if zeros and 2 * zeros.count(0) > len(zeros) and 0 not in others:
            return name
    return None


@contextlib.contextmanager
def as_utf8(file: Location, declared: str | None) -> Iterator[tuple[Location, str | None]]:
    """(the file itself, or a copy in UTF-8 of one that is written in another encoding; that encoding).

    Raises:
        ConfigError: there is no such encoding.
        CorruptFileError: the file is not written in it.
    """
    with contextlib.ExitStack() as stack:
        with storage_errors("read", file.uri), file.filesystem.open_input_stream(file.path) as source:
            try:
                head = source.read(HEAD_BYTES)
            except OSError as error:
                if type(error) is not OSError or error.errno is not None:
                    raise
                head = b""  # damaged, which reading it says
            if declared is None and b"\0" in head and encoding_of(head, None) is None:
                raise CorruptFileError(
                    f"{file.uri} is not text: it has zero bytes. Unpack it, set source.format to what it is, or name its "
                    "encoding by source.arguments: {encoding: utf-16-le}, for example.",
                    uri=file.uri,
                )
            if (encoding := encoding_of(head, declared)) is not None:
                copy = stack.enter_context(tempfile.NamedTemporaryFile())
                decoder = Decoder(encoding, file.uri)
                while head:
                    copy.write(decoder.utf8(head))
                    head = source.read(_COPY_BYTES)
                copy.write(decoder.utf8(b"", final=True))
                copy.flush()
        yield (file if encoding is None else standing_for(file, copy.name)), encoding


class Decoder:
    """Turns text of any encoding into UTF-8, piece by piece."""

    def __init__(self, encoding: str, uri: str) -> None:
        self.encoding, self.uri = encoding, uri
        self._decoder = codecs.getincrementaldecoder(encoding)()

    def utf8(self, data: bytes, *, final: bool = False) -> bytes:
        """Raises:
        CorruptFileError: it is not in the encoding.
        """
        try:
            return self._decoder.decode(data, final).encode().removeprefix(codecs.BOM_UTF8)
        except (UnicodeError, OverflowError) as error:
            raise CorruptFileError(
                f"{self.uri} is not text in {self.encoding}: {error}. Set source.arguments: {{encoding: NAME}} to the encoding "
                "that it has, such as cp1252 or latin-1.",
                uri=self.uri,
            ) from error


def separators(file: Location, declared: Mapping[str, Any]) -> dict[str, Any]:
    """Infer the arguments for a CSV file in UTF-8 that are neither declared nor the defaults, such as `separator`."""
    try:
        with file.filesystem.open_input_stream(file.path) as stream:
            head = stream.read(HEAD_BYTES)
    except OSError:  # damaged, which reading it says
        return {}
    if b"\0" in head:
        return {}
    text = head.decode("utf-8-sig", "replace")
    raw = text.splitlines()[: None if len(head) < HEAD_BYTES else -1]
    inferred: dict[str, Any] = {} if "\n" in text or "\r" not in text else {"eol_char": "\r"}
    separator, first = declared.get("separator"), next((n for n, line in enumerate(raw) if line.strip()), 0)
    if raw and separator is None and (excels := _EXCELS.fullmatch(raw[first])):
        separator, first = excels[1], first + 1
        inferred["separator"] = separator
    first = _header(raw, first, separator)
    if first and any(line.strip() for line in raw[:first]):
        inferred["skip_lines"] = first
    raw = [line for line in raw[first:] if line.strip()]
    lines = [_QUOTED.sub("", line) for line in raw]
    if not lines:
        return {}
    if separator is None and (separator := _separator(lines[0], lines[1:])) != ",":
        inferred["separator"] = separator
    if separator != "," and "decimal_comma" not in declared:
        values = [value for line in lines[1:] for value in line.split(separator)]
        if any(map(_DECIMAL_COMMA.fullmatch, values)) and not any(map(_DECIMAL_POINT.fullmatch, values)):
            inferred["decimal_comma"] = True
    if _are_values(lines[0].split(separator)):
        inferred["has_header"] = False
    if (
        not {"null_values", "new_columns"} & declared.keys()
        and "has_header" not in inferred
        and (missing := _missing(raw, str(separator)))
    ):
        inferred["null_values"] = missing
    return inferred


def _header(lines: list[str], first: int, separator: str | None) -> int:
    """The line of the header: after comments, or the last of them, if that has as many names as the next line has values."""
    after = next((n for n, line in enumerate(lines) if n >= first and line.strip() and not line.startswith("#")), first)
    before = next((n for n in range(after - 1, first - 1, -1) if lines[n].strip()), None)
    if before is None:
        return after
    values = lines[after]
    separator = separator or max(_SEPARATORS, key=values.count)
    is_header = 0 < values.count(separator) == lines[before].count(separator)
    return before if is_header and any(map(_A_NUMBER.fullmatch, map(str.strip, values.split(separator)))) else after


def _missing(lines: list[str], separator: str) -> dict[str, str]:
    """What stands for none, by the names of the columns that hold numbers otherwise."""
    try:
        rows = [*csv.reader(lines, delimiter=separator)]
    except (csv.Error, TypeError):  # an open quote, or a separator of several characters
        return {}
    missing = {}
    for name, *cells in zip(*(row for row in rows if len(row) == len(rows[0])), strict=True):
        kinds = {cell.strip() for cell in cells} - {""}
        others = {cell for cell in kinds if not _A_NUMBER.fullmatch(cell)}
        if len(others) == 1 and len(kinds) > 1 and others <= {*MISSING}:
            missing[name] = others.pop()
    return missing


def _are_values(cells: list[str]) -> bool:
    """Whether the first line holds numbers, and no names: 0, 1, 2 … are names that pandas gives."""
    cells = [cell.strip() for cell in cells]
    filled = [cell for cell in cells if cell]
    if len(filled) < MIN_VALUES or not all(map(_A_NUMBER.fullmatch, filled)):
        return False
    return cells not in ([str(number + first) for number in range(len(cells))] for first in (0, 1))


def note_on(format: str, arguments: Mapping[str, Any]) -> str | None:
    """What was recognised of files in `format`, in a sentence; None: nothing."""
    if not arguments:
        return None
    parts = [f"the encoding {arguments['encoding']}"] if "encoding" in arguments else []
    parts += [f"the separator {arguments['separator']!r}"] if "separator" in arguments else []
    parts += ["decimal commas"] if "decimal_comma" in arguments else []
    parts += ["the line end '\\r'"] if "eol_char" in arguments else []
    parts += [f"{arguments['skip_lines']} lines skipped"] if arguments.get("skip_lines") else []
    parts += [f"{name} {value!r} taken for none" for name, value in arguments.get("null_values", {}).items()]
    parts += ["no header, as the first line holds numbers"] if "has_header" in arguments else []
    line = ", ".join(
        f"{name}: {str(value).lower() if isinstance(value, bool) else repr(value)}" for name, value in arguments.items()
    )
    return Recognised(
        f"{format.upper()} files are read with {' and '.join(parts)} where their first lines show it, each file by its own. "
        f"If that is wrong, set others of source.arguments: {{{line}}}."
    )


def note_on_twice(names: Sequence[str]) -> str | None:
    """Return a sentence on names that the header has twice; None if there are none."""
    repeated = [
        (match[1], name) for name in names if (match := re.fullmatch(r"(.*)_duplicated_\d+", name)) and match[1] in names
    ]
    if not repeated:
        return None
    shown = ", ".join(f"{name} (the next one is {again})" for name, again in repeated)
    return f"The header has columns of one name: {shown}."


def note_on_repeated(file: Location) -> str | None:
    """Return a sentence on names that the first object of a file of JSON has twice; None if there are none."""
    repeated = list[str]()

    def names(pairs: list[tuple[str, Any]]) -> None:
        repeated.extend(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)

    with contextlib.suppress(OSError, ValueError, RecursionError), file.filesystem.open_input_stream(file.path) as stream:
        head = stream.read(HEAD_BYTES).decode("utf-8-sig", "replace").lstrip("[ \n\r\t")
        json.JSONDecoder(object_pairs_hook=names).raw_decode(head)
    if not repeated:
        return None
    return (
        f"Objects of JSON have {' and '.join(dict.fromkeys(repeated))} twice, as the first one of a file does: the first value "
        "is taken, where other programs take the last. Give each value a name of its own."
    )


def first_cells(file: Location, arguments: Mapping[str, Any]) -> dict[str, list[str]]:
    """The values of the first lines of a CSV file in UTF-8 as they are written, by the names of its header; {}: not known.

    Arguments:
        arguments: all that it is read with.
    """
    if not arguments.get("has_header", True) or "new_columns" in arguments:
        return {}
    with contextlib.suppress(OSError, csv.Error, TypeError), file.filesystem.open_input_stream(file.path) as stream:
        head = stream.read(HEAD_BYTES)
        lines = head.decode("utf-8-sig", "replace").splitlines()[: None if len(head) < HEAD_BYTES else -1]
        rows = [*csv.reader(lines[arguments.get("skip_lines", 0) :], delimiter=arguments.get("separator", ","))]
        return {name: cells for name, *cells in zip(*(row for row in rows if len(row) == len(rows[0])), strict=True)}
    return {}


def padded_columns(cells: Mapping[str, list[str]]) -> list[str]:
    """Columns of `first_cells` that hold whole numbers which begin with zeros."""
    return [name for name, column in cells.items() if _are_padded(column)]


def doubtful_points(cells: Mapping[str, list[str]], arguments: Mapping[str, Any]) -> list[str]:
    """Columns of `first_cells` with three digits behind each point: 2.107 may be 2107.

    So it may in a file with decimal commas; and in one with the semicolons that go with them, beside 950, which as a decimal
    number would be 950.000.
    """
    filled = {name: [cell for cell in column if cell.strip()] for name, column in cells.items()}
    separator = arguments.get("separator", ",")
    has_commas = arguments.get("decimal_comma") or (
        separator != ","
        and any(
            all(map(_WITH_COMMA.fullmatch, column)) and any(map(_SURE_DECIMAL_COMMA.fullmatch, column))
            for column in filled.values()
        )
    )
    return [
        name
        for name, column in filled.items()
        if (has_commas or (separator == ";" and any(map(_UP_TO_THOUSAND.fullmatch, column))))
        and any(map(_MAY_BE_THOUSANDS.fullmatch, column))
        and all(_MAY_BE_THOUSANDS.fullmatch(cell) or _UP_TO_THOUSAND.fullmatch(cell) for cell in column)
    ]


def note_on_points(names: Sequence[str], rows: pa.Table, arguments: Mapping[str, Any]) -> str | None:
    """Return a warning of `doubtful_points` that were read as decimal ones; None if there are none."""
    types = {name: rows.schema.field(name).type for name in names if name in rows.column_names}
    is_decimal = is_text if arguments.get("decimal_comma") else pa.types.is_floating
    names = [name for name, kind in types.items() if is_decimal(kind) and name not in arguments.get("schema_overrides", {})]
    if not names:
        return None
    overrides = ", ".join(f"{json.dumps(name, ensure_ascii=False)}: String" for name in names)
    column = '"{}"'.format(names[0].replace('"', '""'))
    expression = json.dumps(f"cast(replace({column}, '.', '') as double)", ensure_ascii=False)
    return (
        f"Points in {' and '.join(names)} are read as decimal ones, but points with three digits behind them, in a file with "
        "decimal commas or semicolons, may be thousands. To settle it, keep the texts: source: {arguments: {schema_overrides: "
        f"{{{overrides}}}}}}}; and if they are thousands, compute the numbers: columns: {{computed: {{NAME: {expression}}}}}."
    )


def note_on_zeros(names: Sequence[str], rows: pa.Table) -> str | None:
    """Return a sentence on `padded_columns` that were read as numbers; None if there are none."""
    lost = [name for name in names if name in rows.column_names and pa.types.is_integer(rows.schema.field(name).type)]
    if not lost:
        return None
    types = ", ".join(f"{json.dumps(name)}: String" for name in lost)
    return (
        f"Numbers of {' and '.join(lost)} begin with zeros, which are lost. To keep them as texts: "
        f"source: {{arguments: {{schema_overrides: {{{types}}}}}}}."
    )


def thousands(rows: pl.LazyFrame, texts: Sequence[str]) -> dict[str, Any]:
    """Types of the columns of text that show that they are numbers with decimal commas and points between the thousands.

    One value has to have both, or two points: 2.107 alone may be a decimal number or an id, and four groups an address.

    Arguments:
        rows: of a file with decimal commas.
        texts: the columns to look at.
    """
    if not texts:
        return {}
    first = rows.select(texts).head(_CANDIDATE_ROWS).select(pl.all().str.contains(_IN_THOUSANDS).all()).collect()
    if not (likely := [name for name in texts if first[name][0]]):
        return {}
    facts = [
        pl.struct(
            numbers=pl.col(name).str.contains(_IN_THOUSANDS).all(),
            sure=pl.col(name).str.contains(_SURE_THOUSANDS).any(),
            real=pl.col(name).str.contains(",", literal=True).any(),
            address=pl.col(name).str.contains(_LIKE_ADDRESS).any(),
            long=pl.col(name).str.contains(_LIKE_ID).any(),
        ).alias(name)
        for name in likely
    ]
    found = rows.select(facts).collect(engine="streaming").row(0, named=True)
    return {
        name: pl.Float64 if fact["real"] else pl.Int64
        for name, fact in found.items()
        if fact["numbers"] and fact["sure"] and not fact["long"] and (fact["real"] or not fact["address"])
    }


def note_on_thousands(names: Iterable[str]) -> str:
    """Return a sentence on the columns whose points were read as those between thousands."""
    names = list(names)
    types = ", ".join(f"{json.dumps(name, ensure_ascii=False)}: String" for name in names)
    return (
        f"Points in {' and '.join(names)} are read as those between thousands, as the file has decimal commas: 2.107 is 2107. "
        f"If they are not, keep the texts and compute numbers: source: {{arguments: {{schema_overrides: {{{types}}}}}}}."
    )


def _are_padded(cells: list[str]) -> bool:
    """Whether they are whole numbers, one of three digits or more with a zero before them: 08 is an hour."""
    return any(len(cell) > 2 and cell.startswith("0") for cell in cells) and all(cell.isdecimal() for cell in cells if cell)


def _separator(header: str, lines: list[str]) -> str:
    """Return the separator of most columns of the header, if each line has as many, or the header has no comma."""
    count = {separator: header.count(separator) for separator in _SEPARATORS}
    best = max(_SEPARATORS, key=lambda separator: count[separator])
    is_sure = bool(lines) and all(line.count(best) == count[best] for line in lines)
    return best if count[best] > count[","] and (is_sure or not (count[","] or best == " ")) else ","


def changed_in_utf8(change: Callable[[bytes], bytes], head: bytes, declared: str | None, uri: str) -> bytes:
    """What `change` makes of the first bytes of a text file, in the file's encoding; a character that is cut is left out."""
    encoding = encoding_of(head[:HEAD_BYTES], declared)
    return change(head) if encoding is None else change(Decoder(encoding, uri).utf8(head)).decode().encode(encoding)
