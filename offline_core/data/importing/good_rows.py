"""Find the rows of a table that can be converted, and the types that most of them have."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from offline_core.data.episodes.nested import Nested
from offline_core.data.importing.report import Unreadable
from offline_core.data.importing.values import empty_arrays
from offline_core.errors import DataError

PROBES = 64
"""So many rows of a table are tried one by one, evenly spread, to learn what its rows are like."""
SEARCHED_ROWS = 4096
"""Up to so many rows are searched for good ones to the last; of more, none is taken for good if no probe is."""

Convert: TypeAlias = Callable[[pa.Table], pa.Table]

CLIPPED = "_clipped_action"
"""A column beside the others while a table is converted."""


def good_rows(
    convert: Convert, table: pa.Table, rows: np.ndarray, uri: str, bad: list[Unreadable]
) -> list[tuple[pa.Table, np.ndarray]]:
    """Halves a table that cannot be converted until what is left is good, or one bad row."""
    try:
        return [(convert(table), rows)]
    except DataError as error:
        if len(rows) <= 1 or (len(rows) > SEARCHED_ROWS and not _probes(convert, table)):
            bad += [Unreadable(uri, int(row), 1, error) for row in rows]
            return []
    half = len(rows) // 2
    left = good_rows(convert, table.slice(0, half), rows[:half], uri, bad)
    return left + good_rows(convert, table.slice(half), rows[half:], uri, bad)


def usual_types(convert: Convert, table: pa.Table) -> dict[str, Nested]:
    """Templates of the whole table or, if it cannot be converted, of most of the rows that can be; none if there are none."""
    try:
        good = [convert(table)]
    except DataError:
        good = _probes(convert, table)
    good = [part.drop_columns([CLIPPED]) if CLIPPED in part.column_names else part for part in good]
    kinds = [str(part.schema) for part in good]
    return empty_arrays(good[kinds.index(max(kinds, key=kinds.count))]) if good else {}


def _probes(convert: Convert, table: pa.Table) -> list[pa.Table]:
    """Those of `PROBES` rows that can be converted, each by itself."""
    good = []
    for row in np.unique(np.linspace(0, table.num_rows - 1, PROBES).astype(int)).tolist():
        with contextlib.suppress(DataError):
            good.append(convert(table.slice(row, 1)))
    return good
