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


def with_losses(table: pa.Table, lost: Sequence[Place]) -> pa.Table:
    """Rows in canonical columns with `LOSSES`; their ids, if they have any, are unique everywhere.

    A place without an id may be of any id, and comes next if it is the next row of the file.

    Arguments:
        lost: places of rows that could not be read.
    """
    count = table.num_rows
    if not lost:
        none, no = pa.repeat(0, count), pa.repeat(False, count)
        return _appended(table, (none, none, no, no, no))
    has_ids = columns.EPS_ID in table.column_names
    place = _place_of(table[SOURCE_FILE].to_numpy().astype(np.int64), table[SOURCE_ROW].to_numpy())
    ids = pl.Series(table[columns.EPS_ID], dtype=pl.String) if has_ids else pl.repeat("", count, eager=True)
    places = pl.DataFrame(
        [(_place_of(at.file, at.row), at.eps_id if has_ids else None) for at in lost],
        schema={"place": pl.Int64, "id": pl.String},
        orient="row",
    )
    id, is_lost = pl.col("id"), pl.col("line").is_null()
    of_any, of_its_id = ((is_lost & of).cast(pl.Int64) for of in (id.is_null(), id.is_not_null()))
    next_of_any = (pl.col("place") + 1).is_in(places.filter(id.is_null())["place"].implode())
    rows = (
        pl.concat([pl.DataFrame({"place": place, "id": ids}).with_row_index("line"), places], how="diagonal")
        .sort("place", "line", nulls_last=True)
        .with_columns(
            (of_any.cum_sum() + of_its_id.cum_sum().over("id")).alias(LOST),
            is_lost.cast(pl.Int64).cum_sum().alias(PASSED),
            (next_of_any | (of_its_id.shift(-1, fill_value=0).over("id") > 0)).alias(THEN_LOST),
            total=of_any.sum() + of_its_id.sum().over("id"),
        )
        .filter(~is_lost)
        .with_columns(
            (pl.col(LOST) > pl.col(LOST).shift(fill_value=0).over("id")).alias(LOST_BEFORE),
            (id.is_last_distinct() & (pl.col("total") > pl.col(LOST))).alias(LOST_AFTER),
        )
    )
    return _appended(table, [column.to_arrow() for column in rows.sort("line").select(LOSSES)])


def with_flags(table: pa.Table, flags: Sequence[pa.Array]) -> pa.Table:
    """Stored rows, with `LOSSES`, where only the `FLAGS` are known of them, (N,) bool each."""
    unknown = pa.nulls(table.num_rows, pa.int64())
    return _appended(table, (unknown, unknown, *flags))


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


def _place_of(file: Any, row: Any) -> Any:
    """One number that grows with the file and the row in it."""
    return (file << 40) + row


def _appended(table: pa.Table, losses: Sequence[pa.Array]) -> pa.Table:
    for name, column in zip(LOSSES, losses, strict=True):
        table = table.append_column(name, column)
    return table
