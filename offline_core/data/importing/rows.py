"""Rows of a source in canonical columns, and the order in which they are steps.

What decides where a row belongs is a frame of one line a row, `SourceRows.steps`: its id and t, its ends, its place in the
source. Every rule is an expression on that frame. The columns of the steps themselves are gathered once, when all is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from offline_core.data.episodes import arrow, columns, nested
from offline_core.data.episodes.arrow import read_column
from offline_core.data.episodes.nested import Nested
from offline_core.data.formats.sources.readers import SOURCE_ROW
from offline_core.data.importing.episode_ids import SOURCE_FILE, folder_of
from offline_core.data.importing.linking import chain, distinct_rows, numbered, observations, row_bytes
from offline_core.data.importing.losses import LOSSES, SAME_ID, are_unsure, over_lost
from offline_core.data.importing.mapping import ColumnMapping
from offline_core.data.importing.times import MIN_STEPS, MONTHS_SET_BACK, SET_BACK, time_gaps
from offline_core.data.importing.values import MAPS
from offline_core.errors import EpisodeError
from offline_core.runtime.units import date_text

STORED = -1
"""The number of the file that stored rows come from: the version that is appended to."""
EMPTY_MAP = b"\x80"

ID, T, FILE, ROW = pl.col("id"), pl.col("t"), pl.col("file"), pl.col("row")
TERMINATED, TRUNCATED, FINAL, BEGINS = (pl.col(name) for name in ("terminated", "truncated", "final", "begins"))
DONE = TERMINATED | TRUNCATED


@dataclass(frozen=True)
class SourceRows:
    """Rows of a source: no `EpisodeBatch`, for they may be out of order, occur twice, or belong to no episode."""

    table: pa.Table
    """The columns that are not in `steps`."""
    steps: pl.DataFrame
    """A line a row:

    at                      number of the row in `table`
    id                      number of the row's id; without ids, of rows known to belong together
    t                       int64 or float64; 0 without such a column
    terminated, truncated   flags of the source
    begins                  the source says that the row is the first of an episode
    final                   the row is no step: it holds the observation after the last one
    file, row               its place in the source; file `STORED`: of the version that is appended to
    lacks                   maps that it has not
    `LOSSES`                what could not be read around it
    and once the lines are in order
    starts                  the row does not follow the one before it
    gap                     … for it comes too long after it
    """
    ids: list[str] | None
    """The ids of episodes by their numbers; None if rows have no ids."""
    files: Sequence[str]
    """URIs by the numbers of files."""
    mapping: ColumnMapping
    """What columns are called in the source, for messages."""

    @classmethod
    def of(
        cls,
        table: pa.Table,
        files: Sequence[str],
        mapping: ColumnMapping,
    ) -> SourceRows:
        """The rows in the order of the source; `table` holds `LOSSES`."""
        count, names = table.num_rows, table.column_names
        file, row = (table[name].to_numpy().astype(np.int64) for name in (SOURCE_FILE, SOURCE_ROW))
        t = read_column(table, columns.T).reshape(count) if columns.T in names else np.zeros(count, np.int64)
        ids, number = None, np.zeros(count, np.int64)
        if columns.EPS_ID in names:
            encoded = table[columns.EPS_ID].combine_chunks().dictionary_encode()
            ids, number = encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)
        flags = {
            "terminated": columns.TERMINATEDS,
            "truncated": columns.TRUNCATEDS,
            "begins": columns.IS_FIRST,
            "final": columns.IS_LAST,
        }
        steps = pl.DataFrame({"at": np.arange(count), "id": number, "t": t, "file": file, "row": row}).with_columns(
            *pl.DataFrame(table.select(LOSSES)),
            **{
                short: pl.Series(pc.fill_null(table[name], False).to_numpy()) if name in names else pl.lit(False)
                for short, name in flags.items()
            },
            lacks=pl.Series(sum((_is_empty(table[name]).astype(int) for name in MAPS if name in names), np.zeros(count, int))),
        )
        taken = {columns.EPS_ID, columns.T, *flags.values(), SOURCE_FILE, SOURCE_ROW, *LOSSES}
        taken |= {columns.INFOS} if columns.INFOS in names and table[columns.INFOS].null_count == count else set()
        rest = table.drop_columns([name for name in names if name in taken])
        return cls(rest, steps.sort("file", "row", maintain_order=True), ids, files, mapping)

    def __len__(self) -> int:
        return len(self.steps)

    def with_steps(self, steps: pl.DataFrame) -> SourceRows:
        """Return the same rows with other `steps`."""
        return replace(self, steps=steps)

    def sorted(self, *by: str) -> SourceRows:
        """Sort the rows by these columns of `steps`; equal rows keep their order."""
        return self.with_steps(self.steps.sort(*by, maintain_order=True))

    def without_ids(self, ids: pl.Series) -> SourceRows:
        """Return the rows without those of these ids."""
        return self.with_steps(self.steps.filter(~ID.is_in(ids.implode()))) if len(ids) else self

    def gathered(self) -> SourceRows:
        """Return the same rows with `table` in the order of `steps`."""
        return replace(self, table=self.taken(), steps=self.steps.with_columns(at=pl.int_range(pl.len())))

    def taken(self) -> pa.Table:
        """Return `table` in the order of `steps`."""
        at = self.steps["at"]
        return self.table if at.equals(pl.Series(np.arange(self.table.num_rows))) else self.table.take(at.to_arrow())

    def observations(self) -> tuple[Nested, Nested]:
        """(obs, new_obs) in the order of the lines, see `linking.observations`."""
        return observations(replace(self, table=self.table.select([columns.OBS, columns.NEW_OBS])).taken())

    @property
    def has_new_obs(self) -> bool:
        return columns.NEW_OBS in self.table.column_names

    def follows(self) -> pl.Series:
        """Bool: new_obs of the line before exists, and is the line's obs."""
        fits = np.full(max(0, len(self) - 1), self.has_new_obs)
        if fits.any():
            for obs, new_obs in zip(*map(nested.leaves, self.observations()), strict=True):
                fits &= (new_obs[:-1] == obs[1:]).all(axis=tuple(range(1, obs.ndim)))
        return pl.Series(np.append(np.zeros(min(1, len(self)), bool), fits))

    def breaks(self) -> pl.Expr:
        """The line is of another id, comes after an end, or its obs is not the new_obs before it."""
        apart = ~SAME_ID | DONE.shift(fill_value=True) | BEGINS
        return apart | ~pl.lit(self.follows()) if self.has_new_obs else apart

    def where(self, line: int) -> str:
        """The place of a line, for messages."""
        return f"row {self.steps['row'][line]:,} of {self.files[self.steps['file'][line]]}"

    def name(self, line: int) -> str:
        """The id of a line, for messages."""
        assert self.ids is not None
        return str(self.ids[self.steps["id"][line]])


Refuse: TypeAlias = Callable[[SourceRows, EpisodeError], None]
"""Raises the error, or takes note of it and of the rows that are left out because of it."""


def put_in_order(
    rows: SourceRows, order: str, refuse: Refuse, max_gap: float | None, *, is_timed: bool
) -> tuple[SourceRows, int]:
    """(the steps episode after episode, each once, with `starts` and `gap`; ambiguous links).

    Arguments:
        order: as `order_of` says.
        refuse: is given episodes of which different rows claim the same place.
        max_gap: in the unit of t, see `time_gaps`; None, where new_obs says what follows: none is too long.
        is_timed: t holds times, which show gaps also where rows are taken as they are stored.

    Raises:
        EpisodeError: where steps are missing that could not be read is not known.
        SchemaError: obs and new_obs cannot be compared.
    """
    match order:
        case "t" | "time":
            return _by_t(rows, refuse, max_gap, by_number=order == "t"), 0
        case "linked":
            return _linked(rows)
        case "stored":
            rows = _as_stored(rows)
            return (_cut_at_gaps(rows, max_gap) if is_timed else rows), 0
    rows = rows.sorted("id")
    return rows.with_steps(rows.steps.with_columns(starts=True, gap=False)), 0


def _by_t(rows: SourceRows, refuse: Refuse, max_gap: float | None, *, by_number: bool) -> SourceRows:
    if rows.ids is None:
        rows, apart = _without_copies(rows), _BEGINS_EPISODE
        if rows.steps["file"].n_unique() > 1:
            apart |= (FILE.diff() != 0).fill_null(True) & ~pl.lit(rows.follows())
        rows = rows.with_steps(rows.steps.with_columns(id=apart.cum_sum()))
    rows = _once(rows.sorted("id", "t", "lacks"), refuse, by_number=by_number).gathered()
    starts, gap = rows.breaks(), pl.lit(False)
    if by_number:
        starts |= (T.diff() != 1).fill_null(True)
        return rows.with_steps(rows.steps.with_columns(starts=starts, gap=gap))
    if not _shows_missing(rows, max_gap):
        starts |= _over_lost(rows)
    return _cut_at_gaps(rows.with_steps(rows.steps.with_columns(starts=starts, gap=gap)), max_gap)


def _cut_at_gaps(rows: SourceRows, max_gap: float | None) -> SourceRows:
    """The rows in order, which also start something where so much time lies before them, see `time_gaps`."""
    if max_gap is None and rows.has_new_obs:
        return rows
    times, ids, begin = (rows.steps[name].to_numpy() for name in ("t", "id", "starts"))
    gaps = pl.Series(time_gaps(times, ids, begin, max_gap))
    return rows.with_steps(rows.steps.with_columns(gap=gaps, starts=pl.col("starts") | gaps))


_BEGINS_EPISODE = DONE.shift(fill_value=True) | (T.diff() <= 0).fill_null(True) | BEGINS
"""Of rows without ids: t does not grow, or the source says so."""


def _without_copies(rows: SourceRows) -> SourceRows:
    """The rows, without ids, without those that repeat the one before, t and all; equal episodes of one step are no copies."""
    if not len(again := rows.steps.select(T.diff() == 0).to_series().arg_true()):
        return rows
    line = np.arange(len(rows))
    is_copy = np.isin(line, again.filter(pl.Series(_repeats(rows, again))))
    same, begins, says = (
        (rows.steps.select((BEGINS.shift() == BEGINS) & (FINAL.shift() == FINAL), a=_BEGINS_EPISODE, b=BEGINS).fill_null(False))
        .to_numpy()
        .T
    )
    is_copy &= same
    first = np.maximum.accumulate(np.where(is_copy, 0, line))  # that a row repeats, or the row itself
    after = np.minimum.accumulate(np.where(is_copy, len(line), line)[::-1])[::-1]  # the first row that repeats it no more
    is_alone = begins[first] & (says | np.append(begins, True)[after])  # an episode of one step, as often
    return rows.with_steps(rows.steps.filter(pl.Series(~is_copy | is_alone)))


def repeated(rows: SourceRows) -> int:
    """How many rows of an id, which are an episode each, equal another one of it in all values, t and all."""
    if rows.ids is None:
        return 0
    rows = rows.sorted("id", "t")
    again = rows.steps.select(SAME_ID & (T.diff() == 0)).to_series().arg_true()
    return int(_repeats(rows, again).sum()) if len(again) else 0


def _repeats(rows: SourceRows, lines: pl.Series) -> np.ndarray:
    """(L,) bool: the line equals the one before it, but for its id, t and place in the source."""
    at = rows.steps["at"].to_numpy()
    same = rows.steps.select((TERMINATED.shift() == TERMINATED) & (TRUNCATED.shift() == TRUNCATED)).to_series().gather(lines)
    before, repeated = (rows.table.take(pa.array(at[each])) for each in (lines - 1, lines))
    repeats: np.ndarray = same_rows(before, repeated) & same.to_numpy()
    return repeats


def _once(rows: SourceRows, refuse: Refuse, *, by_number: bool) -> SourceRows:
    """The rows in order of id and t, each place once; without the ids of which different ones claim a place."""
    again = (SAME_ID & (T.shift() == T).fill_null(False)).alias("again")
    if rows.ids is None or not rows.steps.select(again.any()).item():
        return rows
    steps = rows.steps.with_columns(again)
    lines = steps["again"].arg_true()
    different = lines.filter(pl.Series(~_repeats(rows, lines)))
    refused = steps["id"].gather(different).unique(maintain_order=True)
    for line in different.filter(steps["id"].gather(different).is_first_distinct()):
        step = f"{_step(steps['t'][line], by_number=by_number)} of episode {rows.name(line)}"
        error = EpisodeError(
            f"Two different rows claim to be {step}: {rows.where(line - 1)} and {rows.where(line)}. "
            f"{_remedy(rows, line, by_number)}"
        )
        refuse(rows.with_steps(rows.steps.filter(steps["id"][line] == ID)), error)
    left = rows.with_steps(steps).without_ids(refused)
    return left.with_steps(left.steps.filter(~pl.col("again")).drop("again"))


def _step(t: float, *, by_number: bool) -> str:
    """A step by its number or its time, for messages."""
    return f"the step at {date_text(t)}" if not by_number and _is_date(t) else f"step {t}"


def _is_date(t: float) -> bool:
    return columns.LEAST_NANOSECONDS <= t < 2**63


def _remedy(rows: SourceRows, line: int, by_number: bool) -> str:
    """What helps where a line and the one before it have one place."""
    if rows.steps["file"][line] != rows.steps["file"][line - 1]:
        return "If each file numbers its episodes by itself, set episodes.ids_per: file."
    if not by_number and (back := _clock_set_back(rows.steps.filter(rows.steps["id"][line] == ID))) is not None:
        before, after = back
        return (
            f"In the order of the file, {before} is followed by {after}, as in local times when the clock is set back. Write "
            f"UTC or offsets, as {after.replace(' ', 'T')}+01:00 has one; or, if rows lie in the order of the steps, set "
            "episodes.order: stored."
        )
    is_date = not by_number and _is_date(rows.steps["t"][line])
    what = "t comes twice" if by_number else "the clock is coarser than the steps"
    unseen = "" if is_date else ", which does not see missing steps" + (" without episodes.max_gap" if not by_number else "")
    return (
        f"Both are in one file: {what}. If rows lie in the order of the steps, set episodes.order: stored{unseen}; if several "
        "episodes have this id, map a column that tells them apart to eps_id."
    )


def _clock_set_back(steps: pl.DataFrame) -> tuple[str, str] | None:
    """(the time before the times of an id first go back, the one after it), if they do so as local times at the end of summer.

    That is by half an hour to an hour, or by what is left of the hour after a step of the usual length.
    """
    t = steps.sort("file", "row")["t"].to_numpy()
    took = np.diff(t)
    back = np.flatnonzero(took <= 0)
    if t[0] < columns.LEAST_NANOSECONDS or not len(back):
        return None
    least, usual = took[back], np.median(took)
    if not (((least >= -SET_BACK) & (least <= -SET_BACK // 2)) | (least == usual - SET_BACK)).all():
        return None
    months = t[back].astype("datetime64[ns]").astype("datetime64[M]").astype(int) % 12 + 1
    if not np.isin(months, MONTHS_SET_BACK).all():  # a time of an hourly log that merely comes twice
        return None
    return date_text(t[back[0]]), date_text(t[back[0] + 1])


def ids_set_back(rows: SourceRows) -> int:
    """How many ids have times that grow in the source but for one place a year, where they go back as `_clock_set_back` says.

    Of few rows, what is left of the hour after a step of the usual length has to be exact: others may be in any order.

    Arguments:
        rows: in order of time.
    """
    if not rows.steps.select((SAME_ID & (ROW.diff() < 0)).any()).item():  # in the order of the source: nothing has to be sorted
        return 0
    took, time = pl.col("took"), pl.from_epoch("t", "ns").dt
    by_an_hour = (took == took.filter(took > 0).median().over("id") - SET_BACK) | (
        took.is_between(-SET_BACK, -SET_BACK // 2) & (pl.len().over("id") >= MIN_STEPS)
    )
    set_back = by_an_hour & (FILE.diff().over("id") == 0) & time.month().is_in(MONTHS_SET_BACK)
    by_id = (
        rows.steps.sort("file", "row")
        .with_columns(took=T.diff().over("id"))
        .with_columns(back=took < 0, set_back=set_back)
        .group_by("id")
        .agg(pl.sum("back", "set_back"), years=time.year().filter("set_back").n_unique())
    )
    return by_id.filter(pl.col("back") > 0, pl.col("back") == pl.col("set_back"), pl.col("back") == pl.col("years")).height


def same_rows(one: pa.Table, other: pa.Table) -> np.ndarray:
    """(N,) bool: row i of both tables is equal; an empty map is equal to every map."""
    same = np.ones(one.num_rows, bool)
    for name in one.column_names if one.num_rows else ():
        left, right = one[name].combine_chunks(), other[name].combine_chunks()
        if pa.types.is_binary(left.type):
            left, right = (pc.if_else(pc.equal(side, EMPTY_MAP), pa.scalar(None, side.type), side) for side in (left, right))
            same &= pc.fill_null(pc.equal(left, right), True).to_numpy(zero_copy_only=False)
        elif arrow.is_text(left.type):
            equal = pc.fill_null(pc.equal(left, right), False)
            both_null = pc.and_(pc.is_null(left), pc.is_null(right))
            same &= pc.or_(equal, both_null).to_numpy(zero_copy_only=False)
        else:
            for a, b in zip(*(nested.leaves(read_column(table, name)) for table in (one, other)), strict=True):
                same &= ((a == b) | ((a != a) & (b != b))).reshape(len(same), -1).all(axis=1)
    return same


def _as_stored(rows: SourceRows) -> SourceRows:
    if rows.ids is not None:
        rows = rows.sorted("id")
        return rows.with_steps(rows.steps.with_columns(starts=rows.breaks() | _over_lost(rows), gap=False))
    starts = rows.breaks()
    if not rows.has_new_obs:  # nothing to tell by what goes on in another file, or over a gap
        starts |= ((FILE.diff() != 0) | (ROW.diff() != 1)).fill_null(True)
    return rows.with_steps(rows.steps.with_columns(starts=starts, gap=False, id=starts.cum_sum()))


def _linked(rows: SourceRows) -> tuple[SourceRows, int]:
    """(the rows as they follow one another by obs and new_obs, how many links could have been others)"""
    if rows.ids is not None and rows.steps["file"].n_unique() > 1:
        rows = rows.with_steps(rows.steps.filter(_distinct(rows)))
    done, ids = rows.steps.select(DONE).to_series().to_numpy(), rows.steps["id"].to_numpy()
    chains = chain(*rows.observations(), done, ids)
    steps = rows.steps[chains.order].with_columns(starts=pl.Series(chains.starts), gap=False)
    number = pl.col("starts").cum_sum()
    if rows.ids is None:
        return rows.with_steps(steps.with_columns(id=number)), chains.ambiguous
    # Chains of one id together; those without an end first, for what lacks steps at its end may go on in another.
    steps = steps.with_columns(chain=number).with_columns(ends=DONE.sum().over("chain"))
    return rows.with_steps(steps.sort("id", "ends", "chain", maintain_order=True).drop("ends", "chain")), chains.ambiguous


def _distinct(rows: SourceRows) -> pl.Series:
    """Bool: the row is no copy of another; see `distinct_rows`."""
    steps = rows.steps
    contents = [steps[name].to_numpy() for name in ("id", "t", "terminated", "truncated")]
    table, maps = rows.taken(), []
    for name in table.column_names:
        column = table[name].combine_chunks()
        if name in MAPS:
            said = pc.if_else(pc.equal(column, EMPTY_MAP), pa.scalar(None, column.type), column)
            maps.append(said.dictionary_encode().indices.fill_null(-1).to_numpy())
        elif arrow.is_text(column.type):  # and may be null, as ids of agents are
            contents.append(column.dictionary_encode().indices.fill_null(-1).to_numpy())
        else:
            contents.append(read_column(table, name))
    same = numbered(row_bytes(*contents))
    for said in maps:  # rows that are equal but for them are different, none standing for any
        different = np.unique(np.stack([same, said])[:, said >= 0], axis=1)[0]
        disputed = (np.bincount(different, minlength=same.max() + 1) > 1)[same]
        same = np.unique(same * (said.max() + 2) + np.where(disputed, said + 1, 0), return_inverse=True)[1]
    ids, file = steps["id"].to_numpy(), steps["file"].to_numpy()

    def states() -> tuple[np.ndarray, np.ndarray]:
        number = numbered(np.concatenate([row_bytes(tree, ids) for tree in rows.observations()]))
        done = steps.select(DONE).to_series().to_numpy()
        return number[: len(rows)], np.where(done, -1, number[len(rows) :])

    folders = np.unique([folder_of(uri) for uri in rows.files], return_inverse=True)[1]
    missing = steps["lacks"].to_numpy()
    return pl.Series(distinct_rows(same, ids, file=file, folder=folders[file], missing=missing, states=states))


def _shows_missing(rows: SourceRows, max_gap: float | None) -> bool:
    """Whether a missing step always leaves a gap: the largest one is less than twice the shortest time between two steps."""
    if max_gap is None:
        return False
    shortest = rows.steps.select(T.diff().filter(SAME_ID).min()).item()
    return shortest is None or bool(max_gap < 2 * shortest)


def _over_lost(rows: SourceRows) -> pl.Expr:
    """Between the line and the one before it something could not be read, so it may not follow.

    Raises:
        EpisodeError: rows lie in another order than the steps, so that it could be missing anywhere.
    """
    if rows.has_new_obs:
        return pl.lit(False)
    if are_unsure(rows.steps):
        raise EpisodeError(
            "Some rows cannot be read, and the others are not in the order of time: without new_obs, where a step is "
            "missing is not known. Fix these rows, number the steps of an episode by t, or declare an episodes.max_gap of less "
            "than twice the time between two steps."
        )
    return over_lost(rows.steps)


def _is_empty(column: pa.ChunkedArray) -> np.ndarray:
    """(N,) bool: there is no map in the row, or an empty one."""
    return pc.fill_null(pc.equal(column, EMPTY_MAP), True).to_numpy()  # type: ignore[no-any-return]
