"""What order the rows of a source are in, where they end episodes, and whether whole numbers count steps or are times."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offline_core.data.episodes import columns
from offline_core.data.episodes.arrow import read_column
from offline_core.data.formats.sources.names import ENDS
from offline_core.data.formats.sources.readers import SOURCE_ROW
from offline_core.data.formats.sources.scans import ParquetFile
from offline_core.data.formats.sources.step_reader import StepReader, Unreadable
from offline_core.data.importing.config import EpisodesConfig
from offline_core.data.importing.episode_ids import SOURCE_FILE
from offline_core.data.importing.linking import observations, row_bytes
from offline_core.data.importing.times import has_timestamps
from offline_core.errors import ConfigError, DataError

IN_ORDER_SHARE = 0.9
"""Rows without ids are taken as lying in order, and not held in memory to be linked, as long as this share of those that are
read together is followed by the row that fits."""

MIN_LOOKED_BYTES = 256 * 2**10
"""Of a file, on average."""
MIN_SHARE = 0.5
"""A column counts steps if at least this share of the steps of its ids come one after the one before; others may be missing."""
MAX_IDS = 2_000_000
"""So many different ids are held to see that none comes again: two hundred megabytes. Rows of more are scattered."""
MAX_ROWS = 2_000_000
"""So many are looked at where the first ones do not count by one: rows of an id may lie in many files."""


def ends_of(table: pa.Table) -> np.ndarray:
    """(N,) bool: the row ends an episode, or the next one begins another."""
    ends = np.zeros(table.num_rows, bool)
    for name in {columns.TERMINATEDS, columns.TRUNCATEDS} & set(table.column_names):
        ends |= table[name].to_numpy()
    if columns.IS_FIRST in table.column_names:
        ends[:-1] |= table[columns.IS_FIRST].to_numpy()[1:]
    return ends


def whole_ends(table: pa.Table, *, is_first: bool) -> np.ndarray:
    """(N,) bool, of rows without ids in order of t: an episode ends here, and the rows that follow do not repeat this one.

    What has the t of an end may repeat it, so the end is one once a row with another t follows; an episode of one step is never
    repeated, see `rows`.

    Arguments:
        is_first: the first row begins an episode.
    """
    ends, t = ends_of(table), read_column(table, columns.T).reshape(table.num_rows)
    goes_on = t[1:] != t[:-1]
    begins, line = np.append(is_first, ends[:-1]), np.arange(len(t))
    first = np.maximum.accumulate(np.where(np.append(True, goes_on), line, 0))  # of the rows with this t
    return np.asarray(ends & (np.append(goes_on, False) | begins[first]))


def lies_in_order(table: pa.Table) -> bool:
    """Whether most rows that end nothing are followed by the row that fits."""
    obs, new_obs = (row_bytes(tree) for tree in observations(table))
    fits = (new_obs[:-1] == obs[1:]).all(axis=1)[~ends_of(table)[:-1]]
    return bool(fits.mean() >= IN_ORDER_SHARE) if len(fits) else True


def ids_lie_in_runs(readers: Sequence[StepReader], sizes: Sequence[int], groups: Sequence[range], name: str | None) -> bool:
    """Whether all rows of an id follow one another, in files of one group; read off their column of ids alone.

    Of remote files it is not known: to look, each would be copied here as a whole, and once more to be read.

    Arguments:
        sizes: bytes of each reader; where they are small, opening the files for that would take longer than it saves.
        groups: numbers of readers.
        name: the column; None: it cannot be read by itself.
    """
    if name is None or sum(sizes) < MIN_LOOKED_BYTES * len(readers):
        return False
    over: set[str] = set()  # ids whose run has ended
    for group in groups:
        before: str | None = None
        for number in group:
            if not isinstance(reader := readers[number], ParquetFile) or not reader.location.is_local:
                return False
            try:
                for batch in dataclasses.replace(reader, columns=(name,)).batches():
                    if isinstance(batch, Unreadable):
                        return False
                    ids = pc.run_end_encode(batch[name].combine_chunks().cast(pa.large_string())).values.to_pylist()
                    if before is not None and ids[0] != before:
                        over.add(before)
                    ended, before = {*ids[:-1]}, ids[-1]
                    if len(ended) < len(ids) - 1 or before in ended or not over.isdisjoint(ids):
                        return False
                    over |= ended
                    if len(over) > MAX_IDS:
                        return False
            except (DataError, pa.ArrowException):
                return False
        over |= {before} if before is not None else set()
    return True


def order_of(rules: EpisodesConfig, table: pa.Table) -> str:
    """What `auto` stands for with these columns and first rows.

    Raises:
        ConfigError: the order cannot be had from these columns.
    """
    names = table.column_names
    order: str = rules.order
    if order == "auto":
        if columns.T in names:
            order = "t" if _numbers_steps(table[columns.T], rules.first_t) else "time"
        else:
            order = "linked" if columns.NEW_OBS in names else "stored"
    if order in ("t", "time") and columns.T not in names:
        raise ConfigError(f"Rows cannot be ordered by {order}: no column is mapped to 't'.")
    if rules.ids_per == "date" and not has_timestamps(table):
        raise ConfigError("Ids per date need a column 't' of timestamps or dates; use episodes.ids_per: file, or folder.")
    if order == "t" and has_timestamps(table):
        raise ConfigError("Column 't' holds times and does not number steps; use order: time.")
    if order == "linked" and columns.NEW_OBS not in names:
        raise ConfigError("Rows cannot be linked without a column new_obs.")
    if columns.NEW_OBS in names and columns.IS_LAST in names:
        raise ConfigError(
            "is_last marks rows that are no steps and hold the observation after the last one; with new_obs there are none. "
            "Map the column to dones instead."
        )
    if order == "single_step" and columns.IS_LAST in names:
        raise ConfigError("Single steps need new_obs: is_last marks rows that hold the observation after the last step.")
    if columns.NEW_OBS not in names and order == "single_step" and rules.last_new_obs == "drop":
        raise ConfigError("Single steps without new_obs would all be dropped; use last_new_obs: repeat.")
    if not says_where_episodes_end(names) and order != "single_step" and not (order == "t" and begins_anew(table)):
        shown = ", ".join(name for name in names if name not in (SOURCE_FILE, SOURCE_ROW))
        raise ConfigError(f"Nothing says where an episode ends: map a column to eps_id or to dones. The columns are {shown}.")
    return order


def says_where_episodes_end(names: Collection[str]) -> bool:
    """Whether one of these canonical columns does."""
    return bool({columns.EPS_ID, columns.IS_FIRST, *ENDS} & {*names})


def begins_anew(table: pa.Table) -> bool:
    """Whether the steps of rows that lie in order are counted anew, as they are where an episode begins."""
    return bool((np.diff(table[columns.T].to_numpy()) < 0).any())


def _numbers_steps(t: pa.ChunkedArray, first: int) -> bool:
    """Whole numbers do; if they are stored as real ones, only those that begin with the first of an episode."""
    if not pa.types.is_floating(t.type):
        return bool(pa.types.is_integer(t.type))
    values = t.to_numpy()
    return bool((values == np.floor(values)).all() and values.min(initial=np.inf) == first)


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


def pace_of(tables: Iterable[pa.Table], *, first: pa.Table) -> Pace:
    """The pace of t in canonical rows under unique ids: of the first ones if they count by one, else of more."""
    if (pace := _pace(first)).counts:
        return pace
    held, rows = list[pa.Table](), 0
    for table in tables:
        names = {columns.EPS_ID, columns.T, columns.TERMINATEDS, columns.TRUNCATEDS, columns.IS_FIRST, SOURCE_FILE}
        held.append(table.select([name for name in table.column_names if name in names]))
        if (rows := rows + table.num_rows) >= MAX_ROWS:
            break
    return _pace(pa.concat_tables(held))


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


def _pace(table: pa.Table) -> Pace:
    t = table[columns.T].to_numpy()
    if columns.EPS_ID in table.column_names:
        group = table[columns.EPS_ID].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
        order = np.lexsort((t, group))
        took, group = np.diff(t[order]).astype(np.float64), group[order]
        inside, group = (np.diff(group) == 0) & (took > 0), group[1:]
    else:
        took = np.diff(t).astype(np.float64)
        apart = (np.diff(table[SOURCE_FILE].to_numpy()) != 0) | ends_of(table)[:-1] | (took <= 0)
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
