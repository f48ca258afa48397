"""Whether a column of whole numbers counts steps, or is a time in which they follow one another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from offline_core.data.episodes import columns
from offline_core.data.importing.config import IdsPer
from offline_core.data.importing.episode_ids import SOURCE_FILE, named
from offline_core.data.importing.step_order import ends_of
from offline_core.errors import ConfigError

MIN_SHARE = 0.5
"""A column counts steps if at least this share of the steps of its ids come one after the one before; others may be missing."""
MAX_ROWS = 2_000_000
"""So many are looked at where the first ones do not count by one: rows of an id may lie in many files."""


class Pace(NamedTuple):
    """How far t goes from each step of an episode to the next."""

    by_one: float
    """The share of steps that go on by one; 1 where there are none."""
    is_even: bool
    """The others go on by so much, or by a multiple of it where steps are missing, in each episode."""
    least: float
    most: float

    @property
    def counts(self) -> bool:
        return self.by_one >= MIN_SHARE

    @property
    def steps(self) -> str:
        return f"{self.least:,.15g}" if self.least == self.most else f"{self.least:,.15g} to {self.most:,.15g}"


def pace_of(tables: Iterable[pa.Table], *, first: pa.Table, files: Sequence[str], per: IdsPer) -> Pace:
    """The pace of t in canonical rows with its file: of the first ones if they count by one, else of more.

    Arguments:
        files: URIs by their number.
        per: where an id stands for one episode.
    """
    if (pace := _pace(first, files, per)).counts:
        return pace
    held, rows = list[pa.Table](), 0
    for table in tables:
        names = {columns.EPS_ID, columns.T, columns.TERMINATEDS, columns.TRUNCATEDS, columns.IS_FIRST, SOURCE_FILE}
        held.append(table.select([name for name in table.column_names if name in names]))
        if (rows := rows + table.num_rows) >= MAX_ROWS:
            break
    return _pace(pa.concat_tables(held), files, per)


def order_by(pace: Pace) -> tuple[str, str | None]:
    """(the order of the steps, a note where it is not `t`).

    Raises:
        ConfigError: t goes on unevenly, so it may be either.
    """
    if pace.counts:
        return "t", None
    if pace.is_even:
        note = (
            f"Column t goes on by {pace.steps} in each episode, so it is taken for a time (episodes.order: time). If it "
            "numbers steps, of which most are missing, set episodes.order: t."
        )
        return "time", note
    raise ConfigError(
        f"Column t holds whole numbers that go on by {pace.steps} in an episode, which neither count steps nor keep a pace. If "
        "it is a time, set episodes.order: time. If it numbers steps, set episodes.order: t: episodes are cut where one is "
        "missing."
    )


def _pace(table: pa.Table, files: Sequence[str], per: IdsPer) -> Pace:
    t = table[columns.T].to_numpy()
    file = table[SOURCE_FILE].to_numpy().astype(np.int64)
    if columns.EPS_ID in table.column_names:
        _, group = named(table[columns.EPS_ID], file, t, files, per)
        order = np.lexsort((t, group))
        took, group = np.diff(t[order]).astype(np.float64), group[order]
        inside, group = (np.diff(group) == 0) & (took > 0), group[1:]
    else:
        took = np.diff(t).astype(np.float64)
        apart = (np.diff(file) != 0) | ends_of(table)[:-1] | (took <= 0)
        group = np.cumsum(apart)
        inside = ~apart
    return _of(took[inside], group[inside])


def _of(took: np.ndarray, group: np.ndarray) -> Pace:
    if not len(took):
        return Pace(1.0, True, 1, 1)
    _, first = np.unique(group, return_index=True)
    least = np.repeat(np.minimum.reduceat(took, first), np.diff(np.append(first, len(took))))
    is_even = bool((took % least == 0).all() and (took == least).mean() >= MIN_SHARE)
    return Pace(float((took == 1).mean()), is_even, float(took.min()), float(np.max(least if is_even else took)))
