"""Read columns from the names of folders, as Hive writes them: `date=2026-01-01/rows.csv`."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Mapping, Sequence
from urllib.parse import unquote

import pyarrow as pa

from offline_core.data.formats.sources.listing import WILDCARDS
from offline_core.data.store.location import Location

_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_FOLDER = re.compile(r"([^=/]+)=([^/]*)")
_WHOLE_NUMBER = re.compile(r"-?\d{1,18}")

Values = Mapping[str, int | str | None]


def named_values(file: Location, source: Location) -> dict[str, str | None]:
    """Return the values of folders named `key=value` that hold a file: folders below the source, or at the end of its path.

    Arguments:
        source: the file, a folder above it, or a pattern that it matches.
    """
    base = source.path if source.path != file.path else posixpath.dirname(file.path)
    while WILDCARDS & set(base):
        base = posixpath.dirname(base)
    while _FOLDER.fullmatch(posixpath.basename(base)):
        base = posixpath.dirname(base)
    folders = posixpath.dirname(file.path).removeprefix(base).split("/")
    pairs = [match.groups() for folder in folders if (match := _FOLDER.fullmatch(folder))]
    return {unquote(name): None if value == _NO_VALUE else unquote(value) for name, value in pairs}


def typed(values: Sequence[Mapping[str, str | None]]) -> list[Values]:
    """Convert values to whole numbers if all values of a name are whole numbers, as PyArrow does; others stay text."""
    every: dict[str, list[str]] = {}
    for file_values in values:
        for name, value in file_values.items():
            every.setdefault(name, []).extend([] if value is None else [value])
    numbers = {name for name, texts in every.items() if all(map(_WHOLE_NUMBER.fullmatch, texts))}
    return [
        {name: int(value) if value is not None and name in numbers else value for name, value in file_values.items()}
        for file_values in values
    ]


def with_values(rows: pa.Table, values: Values, chosen: Collection[str] | None = None) -> pa.Table:
    """The rows with a constant column for each value, or for the chosen ones of them; columns of the rows win."""
    for name, value in values.items():
        if name not in rows.column_names and (chosen is None or name in chosen):
            kind = pa.int64() if isinstance(value, int) else pa.string()
            rows = rows.append_column(name, pa.repeat(pa.scalar(value, kind), rows.num_rows))
    return rows
