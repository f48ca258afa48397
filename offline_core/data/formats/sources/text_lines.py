"""Find the lines of a text file that are not rows, after Polars has failed without naming them."""

from __future__ import annotations

import io
import json
import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import IO, NamedTuple, NoReturn

from offline_core.data.store.location import Location

_QUOTED = re.compile(rb'"[^"]*"')
_ENCODING = "if the file is in another encoding, name it by source.arguments: {encoding: cp1252}, for example"
_Numbered = tuple[int, bytes]


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
            remedy = f"; {_ENCODING}" if isinstance(error, UnicodeDecodeError) else ""
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
            problem = f"line {number} is not UTF-8: {error}; {_ENCODING}"
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
