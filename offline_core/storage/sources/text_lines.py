"""Which line of a text file is to blame: looked for only once Polars, which does not say, has given up on the file."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from typing import NoReturn

from offline_core.storage.location import Location


def first_bad_line(location: Location, format: str, *, separator: str) -> str:
    """`line 3 …`, what is wrong with the first line that is no row; empty if none is found (or the file is no text)."""
    find = {"ndjson": _no_object, "csv": _no_row}.get(format)
    if find is None:
        return ""
    try:
        with location.filesystem.open_input_stream(location.path) as stream:  # which unpacks by the file's name
            return find(io.BufferedReader(stream), separator)
    except (OSError, csv.Error):
        return ""


def _no_object(lines: Iterable[bytes], _: str) -> str:
    for number, line in enumerate(lines, 1):
        try:
            value = json.loads(line, parse_constant=_refuse) if line.strip() else {}
        except (ValueError, RecursionError) as error:
            return f"line {number} is no JSON: {getattr(error, 'msg', error)}"
        if not isinstance(value, dict):
            return f"line {number} is a {type(value).__name__}; each line has to be one JSON object, which is one step"
    return ""


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"JSON has no {constant}")


def _no_row(lines: Iterable[bytes], separator: str) -> str:
    rows = csv.reader((line.decode() for line in lines), delimiter=separator)
    try:
        header = next(rows, [])
        for row in rows:
            if len(row) > len(header):
                return f"line {rows.line_num} has {len(row)} values, the header {len(header)}"
    except UnicodeDecodeError as error:
        return f"line {rows.line_num + 1} is not UTF-8: {error}"
    return ""
