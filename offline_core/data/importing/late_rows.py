"""Join late rows with the rows of stored episodes, by id and t or time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from offline_core.data.episodes import columns, nested
from offline_core.data.episodes.arrow import is_text, read_column
from offline_core.data.formats.sources.scans import SOURCE_ROW
from offline_core.data.importing.episode_ids import SOURCE_FILE

EMPTY_MAP = b"\x80"
_PLACES = {SOURCE_FILE, SOURCE_ROW}


class Joined(NamedTuple):
    """Rows of some ids, each step once unless new rows contradict each other."""

    rows: pa.Table
    """New rows, and stored ones of the file number 0; those of ids of which nothing is new are in neither."""
    known: int
    """New rows left out, as stored ones say the same."""
    stored: dict[str, int]
    """Stored rows by id."""
    corrected: dict[str, int]
    """Stored rows that gave way to new ones with other values, by id."""
    unchanged: set[str]
    """Ids of which no row is new."""


@dataclass
class Late:
    """What became of stored episodes, by ids of the source."""

    unchanged: set[str] = field(default_factory=set)
    completed: set[str] = field(default_factory=set)
    corrected: set[str] = field(default_factory=set)
    corrected_steps: int = 0
    stored_rows: int = 0
    """Rows of the version before that were put into episodes again."""
    rebuilt: int = 0
    """Episodes that were made of those and of late rows."""

    @property
    def replaced(self) -> set[str]:
        return self.completed | self.corrected

    def __iadd__(self, other: Late) -> Late:
        self.unchanged |= other.unchanged
        self.completed |= other.completed
        self.corrected |= other.corrected
        self.corrected_steps += other.corrected_steps
        self.stored_rows += other.stored_rows
        self.rebuilt += other.rebuilt
        return self


def join(new: pa.Table, stored: pa.Table) -> Joined:
    """New rows win where they differ; equal ones are left out.

    Arguments:
        new: rows in canonical columns, `SOURCE_FILE` and `SOURCE_ROW`.
        stored: rows in the same canonical columns, no two of one place.
    """
    keys, old = (_keys(table).with_row_index(name) for table, name in ((new, "new"), (stored, "old")))
    pairs = keys.join(old, on=[columns.EPS_ID, columns.T], how="inner")
    at_new, at_old = pairs["new"].to_numpy().astype(np.int64), pairs["old"].to_numpy().astype(np.int64)
    differs = ~_same(new.take(pa.array(at_new)), stored.take(pa.array(at_old)))
    gives_way = np.zeros(stored.num_rows, bool)
    gives_way[at_old[differs]] = True
    known = np.zeros(new.num_rows, bool)
    known[at_new[~gives_way[at_old]]] = True
    ids, old_ids = keys[columns.EPS_ID], old[columns.EPS_ID]
    fresh = set(ids.filter(pl.Series(~known)).unique().to_list())
    unchanged = set(old_ids.unique().to_list()) - fresh
    corrected = dict(old_ids.filter(pl.Series(gives_way)).value_counts().iter_rows())
    kept = ~gives_way & ~old_ids.is_in(list(unchanged)).to_numpy()
    left = stored.filter(pa.array(kept))
    left = left.append_column(SOURCE_FILE, pa.array(np.zeros(left.num_rows, np.int32)))
    left = left.append_column(SOURCE_ROW, pa.array(np.arange(left.num_rows, dtype=np.int64)))
    rest = new.filter(pa.array(~known))
    rest = rest.set_column(
        rest.column_names.index(SOURCE_FILE), SOURCE_FILE, pc.add(rest[SOURCE_FILE], pa.scalar(1, pa.int32()))
    )
    counts = dict(old_ids.filter(pl.Series(kept)).value_counts().iter_rows())
    rows = pa.concat_tables([left.select(rest.column_names).cast(rest.schema), rest])
    return Joined(rows, int(known.sum()), counts, corrected, unchanged)


def _keys(table: pa.Table) -> pl.DataFrame:
    t = read_column(table, columns.T)
    assert isinstance(t, np.ndarray)
    return pl.DataFrame({columns.EPS_ID: pl.Series(table[columns.EPS_ID].combine_chunks()), columns.T: t.reshape(len(t))})


def _same(one: pa.Table, other: pa.Table) -> np.ndarray:
    """(N,) bool: row i of both says the same; a map that is empty contradicts none."""
    same = np.ones(one.num_rows, bool)
    for name in (name for name in one.column_names if name not in {columns.EPS_ID, columns.T, *_PLACES}):
        left, right = one[name].combine_chunks(), other[name].combine_chunks()
        if pa.types.is_binary(left.type):
            left, right = (pc.if_else(pc.equal(each, EMPTY_MAP), pa.scalar(None, each.type), each) for each in (left, right))
            same &= pc.fill_null(pc.equal(left, right), True).to_numpy(zero_copy_only=False)
        elif is_text(left.type):
            equal = pc.fill_null(pc.equal(left, right), False)
            both_null = pc.and_(pc.is_null(left), pc.is_null(right))
            same &= pc.or_(equal, both_null).to_numpy(zero_copy_only=False)
        else:
            trees = (read_column(table, name) for table in (one, other))
            for a, b in zip(*map(nested.leaves, trees), strict=True):
                equal_values = (a == b) | ((a != a) & (b != b))
                same &= equal_values.reshape(len(same), -1).all(axis=1) if len(same) else same
    return same
