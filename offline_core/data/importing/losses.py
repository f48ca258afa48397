"""What could not be read around the rows of a source: no step follows another over a row that is lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from offline_core.data.episodes import columns
from offline_core.data.formats.sources.readers import SOURCE_ROW
from offline_core.data.importing.episode_ids import SOURCE_FILE
from offline_core.data.importing.report import Place

PASSED, LOST, LOST_BEFORE, LOST_AFTER, THEN_LOST = (
    f"_{name}" for name in ("passed", "lost", "lost_before", "lost_after", "then_lost")
)
LOSSES = (PASSED, LOST, LOST_BEFORE, LOST_AFTER, THEN_LOST)
"""Columns of rows:

passed       places before the row that could not be read; null: the source does not say, as the row is a stored one
lost         those of them that may be of its id; null likewise
lost_before  some that may be of its id were lost between it and the row of its id before it in the source, or before the first
lost_after   the row is the last of its id, and some that may be of its id were lost behind it
then_lost    the row after it was lost, be it of its id or none
"""
FLAGS = (LOST_BEFORE, LOST_AFTER, THEN_LOST)
SAME_ID = (pl.col("id").shift() == pl.col("id")).fill_null(False)
"""The line before has the same id."""


def losses(place: np.ndarray, number: np.ndarray, ids: Sequence[str] | None, lost: Sequence[Place]) -> pl.DataFrame:
    """`LOSSES` of rows. A place without an id may be of any id, and comes next if it is the next row of the file.

    Arguments:
        place: (N,) by `place_of`.
        number: (N,) which of `ids`; None: rows have none.
        lost: places of rows that could not be read.
    """
    if not lost:
        nothing = {name: 0 if name in (PASSED, LOST) else False for name in LOSSES}
        return pl.select(pl.repeat(value, len(place)).alias(name) for name, value in nothing.items()).with_columns(
            pl.col(PASSED, LOST).cast(pl.Int64)
        )
    every = np.sort(_places(lost))
    of_any = np.sort(_places([at for at in lost if ids is None or at.eps_id is None]))
    count, then = np.searchsorted(of_any, place), np.isin(place + 1, of_any)
    total = np.full(len(place), len(of_any))
    if named := [at for at in lost if ids is not None and at.eps_id is not None]:
        own, own_then, own_total = _own(place, number, ids or [], named)
        count, then, total = count + own, then | own_then, total + own_total
    order = np.lexsort((place, number))
    is_first = np.append(True, np.diff(number[order]) != 0)[: len(order)]
    before = np.where(is_first, 0, np.append(0, count[order][:-1])[: len(order)])
    lost_before, lost_after = np.zeros((2, len(order)), bool)
    lost_before[order] = count[order] > before
    lost_after[order] = np.append(is_first[1:], True)[: len(order)] & (total > count)[order]
    return pl.DataFrame(
        {
            PASSED: np.searchsorted(every, place),
            LOST: count,
            LOST_BEFORE: lost_before,
            LOST_AFTER: lost_after,
            THEN_LOST: then,
        }
    )


def with_losses(table: pa.Table, lost: Sequence[Place]) -> pa.Table:
    """Rows under ids that are unique everywhere, with `LOSSES`."""
    encoded = table[columns.EPS_ID].combine_chunks().dictionary_encode()
    place = place_of(*(table[name].to_numpy().astype(np.int64) for name in (SOURCE_FILE, SOURCE_ROW)))
    found = losses(place, encoded.indices.to_numpy().astype(np.int64), encoded.dictionary.to_pylist(), lost).to_arrow()
    return _appended(table, found)


def with_flags(table: pa.Table, flags: Sequence[pa.Array]) -> pa.Table:
    """Stored rows, with `LOSSES`, where only the `FLAGS` are known of them, (N,) bool each."""
    unknown = pa.nulls(table.num_rows, pa.int64())
    return _appended(table, pa.table(dict(zip(LOSSES, (unknown, unknown, *flags), strict=True))))


def over_lost(steps: pl.DataFrame) -> pl.Expr:
    """Something was lost between the line and the one before it, so that it does not follow."""
    more = pl.col(LOST) - pl.col(LOST).shift()
    if steps[LOST].null_count():  # stored rows may lie between two of the source
        more = pl.col(LOST) - pl.col(LOST).forward_fill().shift().over("id")
    return SAME_ID & ((more > 0).fill_null(False) | pl.col(LOST_AFTER).shift(fill_value=False) | pl.col(LOST_BEFORE))


def are_unsure(steps: pl.DataFrame) -> bool:
    """Whether a line was before the one before it in the source, so that what was lost there could be missing anywhere."""
    passed = pl.col(PASSED).forward_fill().over("id") if steps[PASSED].null_count() else pl.col(PASSED)
    return bool(steps.select((SAME_ID & (passed.diff() < 0)).any()).item())


def place_of(file: Any, row: Any) -> Any:
    """One number that grows with the file and the row in it."""
    return (file << 40) + row


def _places(lost: Sequence[Place]) -> np.ndarray:
    return np.array([place_of(at.file, at.row) for at in lost], np.int64)


def _own(
    place: np.ndarray, number: np.ndarray, ids: Sequence[str], lost: Sequence[Place]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """((N,) how many places of its id are before each row, (N,) bool: one comes next, (N,) how many its id has)."""
    codes = {name: code for code, name in enumerate(sorted({str(at.eps_id) for at in lost}))}
    lost_code, lost_place = np.array([codes[str(at.eps_id)] for at in lost], np.int64), _places(lost)
    code = np.array([codes.get(name, -1) for name in ids], np.int64)[number]
    before, then, total = np.zeros(len(place), np.int64), np.zeros(len(place), bool), np.zeros(len(place), np.int64)
    rows = np.flatnonzero(code >= 0)
    # Rows and lost places of each id in the order of the source: a lost place counts for all rows behind it.
    every = np.lexsort((np.append(place[rows], lost_place), np.append(code[rows], lost_code)))
    is_lost = every >= len(rows)
    so_far = np.cumsum(is_lost)
    of_code = np.append(code[rows], lost_code)[every]
    first = np.searchsorted(of_code, of_code)  # of the id
    counted: np.ndarray = so_far - np.where(first > 0, so_far[first - 1], 0)
    before[rows[every[~is_lost]]] = counted[~is_lost]
    next_is_lost = np.append(is_lost[1:] & (of_code[1:] == of_code[:-1]), False)
    then[rows[every[~is_lost]]] = next_is_lost[~is_lost]
    total[rows] = np.bincount(lost_code)[code[rows]]
    return before, then, total


def _appended(table: pa.Table, more: pa.Table) -> pa.Table:
    for name in LOSSES:
        table = table.append_column(name, more[name])
    return table
