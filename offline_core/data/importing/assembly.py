"""Rows of a source, in canonical columns → whole episodes, and what became of every row.

What decides where a row belongs is a frame of one line a row, `Rows.steps`: its id and t, its ends, its place in the source.
Every rule is an expression on that frame. The columns of the steps themselves are gathered once, when all is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from offline_core.data.episodes import Episode, arrow, columns, nested, table_to_episodes
from offline_core.data.episodes.arrow import read_column
from offline_core.data.episodes.nested import Nested
from offline_core.data.episodes.spaces import StoredSpaces
from offline_core.data.formats.sources.names import named
from offline_core.data.formats.sources.readers import SOURCE_ROW
from offline_core.data.importing.config import EpisodesConfig
from offline_core.data.importing.episode_ids import SOURCE_FILE, hashed, id_of_part, numbered_ids
from offline_core.data.importing.linking import chain, distinct_rows, numbered, observations, row_bytes
from offline_core.data.importing.mapping import ColumnMapping
from offline_core.data.importing.report import Counts, Unreadable
from offline_core.data.importing.times import NANOSECONDS, alternating, has_timestamps, time_gaps
from offline_core.errors import EpisodeError

STORED = -1
"""The number of the file that stored rows come from: the version that is appended to."""
MAPS = (columns.INFOS, columns.RESET_INFOS, columns.CUSTOM_DATA)
EMPTY_MAP = b"\x80"
MAX_SHOWN_AGENTS = 5

ID, T, FILE, ROW = pl.col("id"), pl.col("t"), pl.col("file"), pl.col("row")
TERMINATED, TRUNCATED, FINAL, BEGINS = (pl.col(name) for name in ("terminated", "truncated", "final", "begins"))
DONE = TERMINATED | TRUNCATED
SAME_ID = (ID.shift() == ID).fill_null(False)
"""The line before has the same id."""


@dataclass(frozen=True)
class Rows:
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
    lost                    places of the source before it that could not be read
    lacks                   maps that it has not
    and once the lines are in order
    starts                  the row does not follow the one before it
    gap                     … for it comes too long after it
    """
    ids: list[str] | None
    """By their numbers; None where rows have none."""
    files: Sequence[str]
    """URIs by the numbers of files."""
    mapping: ColumnMapping
    """What columns are called in the source, for messages."""

    @classmethod
    def of(
        cls,
        table: pa.Table,
        rules: EpisodesConfig,
        files: Sequence[str],
        lost: Sequence[tuple[int, int]] = (),
        mapping: ColumnMapping = MappingProxyType({}),
    ) -> Rows:
        """The rows in the order of the source.

        Arguments:
            lost: (file, row) of what could not be read.
        """
        count, names = table.num_rows, table.column_names
        file, row = (table[name].to_numpy().astype(np.int64) for name in (SOURCE_FILE, SOURCE_ROW))
        t = read_column(table, columns.T).reshape(count) if columns.T in names else np.zeros(count, np.int64)
        ids, number = None, np.zeros(count, np.int64)
        if columns.EPS_ID in names:
            ids, number = numbered_ids(table[columns.EPS_ID], file, t, files, rules.ids_per)
        flags = {
            "terminated": columns.TERMINATEDS,
            "truncated": columns.TRUNCATEDS,
            "begins": columns.IS_FIRST,
            "final": columns.IS_LAST,
        }
        steps = pl.DataFrame({"at": np.arange(count), "id": number, "t": t, "file": file, "row": row}).with_columns(
            **{
                short: pl.Series(pc.fill_null(table[name], False).to_numpy()) if name in names else pl.lit(False)
                for short, name in flags.items()
            },
            lost=pl.Series(np.searchsorted(np.sort([_place(*each) for each in lost]), _place(file, row))),
            lacks=pl.Series(sum((_is_empty(table[name]).astype(int) for name in MAPS if name in names), np.zeros(count, int))),
        )
        taken = {columns.EPS_ID, columns.T, *flags.values(), SOURCE_FILE, SOURCE_ROW}
        taken |= {columns.INFOS} if columns.INFOS in names and table[columns.INFOS].null_count == count else set()
        rest = table.drop_columns([name for name in names if name in taken])
        return cls(rest, steps.sort("file", "row", maintain_order=True), ids, files, mapping)

    def __len__(self) -> int:
        return len(self.steps)

    def with_steps(self, steps: pl.DataFrame) -> Rows:
        """The same with other lines."""
        return replace(self, steps=steps)

    def sorted(self, *by: str) -> Rows:
        """In the order of these columns of `steps`, then in the present one."""
        return self.with_steps(self.steps.sort(*by, maintain_order=True))

    def without_ids(self, ids: pl.Series) -> Rows:
        """The same without the rows of these ids."""
        return self.with_steps(self.steps.filter(~ID.is_in(ids.implode()))) if len(ids) else self

    def gathered(self) -> Rows:
        """The same with the other columns in the order of the lines."""
        return replace(self, table=self.taken(), steps=self.steps.with_columns(at=pl.int_range(pl.len())))

    def taken(self) -> pa.Table:
        """The other columns in the order of the lines."""
        at = self.steps["at"]
        return self.table if at.equals(pl.Series(np.arange(self.table.num_rows))) else self.table.take(at.to_arrow())

    def observations(self) -> tuple[Nested, Nested]:
        """(obs, new_obs) in the order of the lines, see `linking.observations`."""
        return observations(self.with_columns(columns.OBS, columns.NEW_OBS).taken())

    def with_columns(self, *names: str) -> Rows:
        """The same with these other columns alone."""
        return replace(self, table=self.table.select(names))

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

    def parts(self) -> pl.DataFrame:
        """The first line of each run of steps that follow one another."""
        return self.steps.filter("starts")


Refuse: TypeAlias = Callable[[Rows, EpisodeError], None]
"""Raises the error, or takes note of it and of the rows that are left out because of it."""


class Assembled(NamedTuple):
    """What rows became."""

    episodes: list[Episode]
    """Those first whose first row comes first."""
    counts: Counts
    rows: Rows | None = None
    """The rows in order, with `name`, `is_open` and `kept`, of which `stored.Remainder` takes note; None if there are none."""


def assemble(
    table: pa.Table,
    rules: EpisodesConfig,
    *,
    order: str,
    files: Sequence[str],
    spaces: StoredSpaces,
    refuse: Callable[[Unreadable], None],
    lost: Sequence[tuple[int, int]] = (),
    mapping: ColumnMapping = MappingProxyType({}),
    in_order: Callable[[pa.Table, np.ndarray], pa.Table] | None = None,
) -> Assembled:
    """The episodes of a canonical step table.

    Arguments:
        table: columns of `columns.STEP_COLUMNS` as far as there are any, `SOURCE_FILE` and `SOURCE_ROW`, and extras. All
            rows of an episode are in it; those of the file `STORED` are of the version that is appended to.
        order: as `order_of` says.
        files: URIs by `SOURCE_FILE`, for messages and for ids of episodes that have none.
        refuse: is given the rows of episodes in which different rows claim the same place, or one a place before the
            first, and may raise; they are not counted.
        lost: (file, row) of what could not be read.
        mapping: what columns are called in the source, for messages.
        in_order: makes columns of earlier rows, given rows in order and (N,) bool which of them follow none.

    Raises:
        EpisodeError: the steps cannot be put in order.
        NonFiniteError: a value is NaN or infinite.
    """
    counts = Counts(rows=table.num_rows)

    def left_out(rows: Rows, error: EpisodeError) -> None:
        new = rows.steps.filter(FILE != STORED)  # what is stored stays as it is
        counts.rows -= len(rows)
        for file, number, terminated in new.group_by("file", maintain_order=True).agg(pl.len(), TERMINATED.sum()).iter_rows():
            refuse(Unreadable(files[file], None, number, error, terminated))

    rows = Rows.of(table, rules, files, lost, mapping)
    if order == "single_step" and not {columns.NEW_OBS, columns.TERMINATEDS, columns.TRUNCATEDS} & {*table.column_names}:
        counts.lone_rows = len(rows)  # of a click or an offer nothing follows
        rows = rows.with_steps(rows.steps.with_columns(terminated=pl.lit(True)))
    unit = NANOSECONDS if has_timestamps(table) else 1
    max_gap = None if rules.max_gap is None else rules.max_gap * unit
    if rows.ids is not None and order != "single_step":
        rows = of_one_agent(rows, left_out)
    if order == "t":
        rows = _from_first_t(rows, rules.first_t, left_out)
    if len(rows):
        before = len(rows)
        rows, counts.ambiguous_links, refused = put_in_order(rows, order, left_out, max_gap)
        counts.duplicates = before - len(rows) - refused
    if len(rows) and rows.ids is None and order != "single_step":
        rows = of_one_agent(rows, left_out)
    if len(rows) == 0:
        return Assembled([], counts)
    rows = rows.gathered()
    if in_order is not None:
        rows = replace(rows, table=in_order(rows.table, rows.steps["starts"].to_numpy()))
    if order == "time":
        _count_times(rows, unit, counts)
        if columns.TIME not in table.column_names:
            rows = replace(rows, table=rows.table.append_column(columns.TIME, rows.steps["t"].to_arrow()))
    rows = _completed(rows, rules, counts, order=order)
    episodes = [replace(each, observation_space=spaces[0], action_space=spaces[1]).validate() for each in _episodes(rows)]
    counts.episodes, counts.steps = len(episodes), sum(map(len, episodes))
    return Assembled(episodes, counts, rows)


def put_in_order(rows: Rows, order: str, refuse: Refuse, max_gap: float | None = None) -> tuple[Rows, int, int]:
    """(the steps episode after episode, each once, with `starts` and `gap`; ambiguous links; how many rows were refused).

    Arguments:
        order: as `order_of` says.
        refuse: is given episodes of which different rows claim the same place.
        max_gap: in the unit of t, see `time_gaps`; None, where new_obs says what follows: none is too long.

    Raises:
        EpisodeError: where steps are missing that could not be read is not known.
        SchemaError: obs and new_obs cannot be compared.
    """
    match order:
        case "t" | "time":
            rows, refused = _by_t(rows, refuse, max_gap, by_number=order == "t")
            return rows, 0, refused
        case "linked":
            rows, ambiguous = _linked(rows)
            return rows, ambiguous, 0
        case "stored":
            return _as_stored(rows), 0, 0
    rows = rows.sorted("id")
    return rows.with_steps(rows.steps.with_columns(starts=True, gap=False)), 0, 0


def _by_t(rows: Rows, refuse: Refuse, max_gap: float | None, *, by_number: bool) -> tuple[Rows, int]:
    """(the rows in order, how many were refused)"""
    if rows.ids is None:  # an episode begins where t does not grow
        apart = DONE.shift(fill_value=True) | (T.diff() <= 0).fill_null(True) | BEGINS
        if rows.steps["file"].n_unique() > 1:
            apart |= (FILE.diff() != 0).fill_null(True) & ~pl.lit(rows.follows())
        rows = rows.with_steps(rows.steps.with_columns(id=apart.cum_sum()))
    rows, refused = _once(rows.sorted("id", "t", "lacks"), refuse, by_number=by_number)
    rows = rows.gathered()
    starts, gap = rows.breaks(), pl.lit(False)
    if by_number:
        starts |= (T.diff() != 1).fill_null(True)
        return rows.with_steps(rows.steps.with_columns(starts=starts, gap=gap)), refused
    if not _shows_missing(rows, max_gap):
        starts |= _over_lost(rows)
    rows = rows.with_steps(rows.steps.with_columns(starts=starts, gap=gap))
    if max_gap is None and rows.has_new_obs:
        return rows, refused
    times, ids, begin = (rows.steps[name].to_numpy() for name in ("t", "id", "starts"))
    gaps = pl.Series(time_gaps(times, ids, begin, max_gap))
    return rows.with_steps(rows.steps.with_columns(gap=gaps, starts=pl.col("starts") | gaps)), refused


def _once(rows: Rows, refuse: Refuse, *, by_number: bool) -> tuple[Rows, int]:
    """(the rows in order of id and t, each place once; how many were refused, as different ones claim a place)"""
    again = (SAME_ID & (T.shift() == T).fill_null(False)).alias("again")
    if rows.ids is None or not rows.steps.select(again.any()).item():
        return rows, 0
    steps = rows.steps.with_columns(again)
    lines = steps["again"].arg_true()
    flags = steps.select(same=(TERMINATED.shift() == TERMINATED) & (TRUNCATED.shift() == TRUNCATED))["same"].gather(lines)
    at = steps["at"].to_numpy()
    same = same_rows(rows.table.take(pa.array(at[lines - 1])), rows.table.take(pa.array(at[lines]))) & flags.to_numpy()
    different = lines.filter(pl.Series(~same))
    refused = steps["id"].gather(different).unique(maintain_order=True)
    for line in different.filter(steps["id"].gather(different).is_first_distinct()):
        error = EpisodeError(
            f"Two different rows claim to be step {steps['t'][line]} of episode {rows.name(line)}: {rows.where(line - 1)} and "
            f"{rows.where(line)}. {_remedy(rows, line, by_number)}"
        )
        refuse(rows.with_steps(rows.steps.filter(steps["id"][line] == ID)), error)
    left = rows.with_steps(steps).without_ids(refused)
    return left.with_steps(left.steps.filter(~pl.col("again")).drop("again")), len(rows) - len(left)


def _remedy(rows: Rows, line: int, by_number: bool) -> str:
    """What helps where a line and the one before it have one place."""
    if rows.steps["file"][line] != rows.steps["file"][line - 1]:
        return "If each file numbers its episodes by itself, set episodes.ids_per: file."
    what = "t comes twice" if by_number else "the clock is coarser than the steps"
    return (
        f"Both are in one file: {what}. If rows lie in the order of the steps, set episodes.order: stored; if several episodes "
        "have this id, map a column that tells them apart to eps_id."
    )


def same_rows(one: pa.Table, other: pa.Table) -> np.ndarray:
    """(N,) bool: row i of both says the same; a map that is empty contradicts none."""
    same = np.ones(one.num_rows, bool)
    for name in one.column_names if one.num_rows else ():
        left, right = one[name].combine_chunks(), other[name].combine_chunks()
        if pa.types.is_binary(left.type):
            left, right = (pc.if_else(pc.equal(each, EMPTY_MAP), pa.scalar(None, each.type), each) for each in (left, right))
            same &= pc.fill_null(pc.equal(left, right), True).to_numpy(zero_copy_only=False)
        elif arrow.is_text(left.type):
            equal = pc.fill_null(pc.equal(left, right), False)
            both_null = pc.and_(pc.is_null(left), pc.is_null(right))
            same &= pc.or_(equal, both_null).to_numpy(zero_copy_only=False)
        else:
            for a, b in zip(*(nested.leaves(read_column(table, name)) for table in (one, other)), strict=True):
                same &= ((a == b) | ((a != a) & (b != b))).reshape(len(same), -1).all(axis=1)
    return same


def _as_stored(rows: Rows) -> Rows:
    if rows.ids is not None:
        rows = rows.sorted("id")
        return rows.with_steps(rows.steps.with_columns(starts=rows.breaks() | _over_lost(rows), gap=False))
    starts = rows.breaks()
    if not rows.has_new_obs:  # nothing to tell by what goes on in another file, or over a gap
        starts |= ((FILE.diff() != 0) | (ROW.diff() != 1)).fill_null(True)
    return rows.with_steps(rows.steps.with_columns(starts=starts, gap=False, id=starts.cum_sum()))


def _linked(rows: Rows) -> tuple[Rows, int]:
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


def _distinct(rows: Rows) -> pl.Series:
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

    folders = np.unique([uri.rpartition("/")[0] for uri in rows.files], return_inverse=True)[1]
    missing = steps["lacks"].to_numpy()
    return pl.Series(distinct_rows(same, ids, file=file, folder=folders[file], missing=missing, states=states))


def _shows_missing(rows: Rows, max_gap: float | None) -> bool:
    """Whether a missing step always leaves a gap: the largest one is less than twice the shortest time between two steps."""
    if max_gap is None:
        return False
    shortest = rows.steps.select(T.diff().filter(SAME_ID).min()).item()
    return shortest is None or bool(max_gap < 2 * shortest)


def _over_lost(rows: Rows) -> pl.Expr:
    """Between the line and the one before it something could not be read, so it may not follow.

    Raises:
        EpisodeError: rows lie in another order than the steps, so that it could be missing anywhere.
    """
    if rows.has_new_obs:
        return pl.lit(False)
    lost = pl.col("lost").diff().fill_null(0)
    if rows.steps.select((SAME_ID & (lost < 0)).any()).item():
        raise EpisodeError(
            "Some rows cannot be read, and the others are not in the order of time: without new_obs, where a step is "
            "missing is not known. Fix these rows, number the steps of an episode by t, or declare an episodes.max_gap of less "
            "than twice the time between two steps."
        )
    return SAME_ID & (lost > 0)


def _from_first_t(rows: Rows, first: int, refuse: Refuse) -> Rows:
    """The rows with their t counted from `first`; episodes with one before it are refused.

    Raises:
        EpisodeError: a t is no whole number.
    """
    steps = rows.steps.with_columns(T.cast(pl.Int64))
    if len(between := (steps["t"] != rows.steps["t"]).arg_true()):
        line = between[0]
        raise EpisodeError(f"t is {rows.steps['t'][line]} in {rows.where(line)} and numbers no step; set episodes.order: time.")
    early = steps.filter(first > T)
    if not len(early):
        return rows.with_steps(steps.with_columns(T - first))
    line = int(steps["t"].arg_min() or 0)
    error = EpisodeError(
        f"t is {steps['t'][line]} in {rows.where(line)}, before the first one, which is {first}. Set episodes.first_t to the t "
        "of an episode's first step."
    )
    is_refused = first > T if rows.ids is None else ID.is_in(early["id"].unique().implode())
    refuse(rows.with_steps(steps.filter(is_refused)), error)
    return rows.with_steps(steps.filter(~is_refused).with_columns(T - first))


def of_one_agent(rows: Rows, refuse: Refuse) -> Rows:
    """The rows without the episodes in which several agents act, whose steps would follow one another: they are refused."""
    for name in named(columns.AGENT_ID, rows.table.column_names):
        column = rows.table[name].combine_chunks()
        if not len(rows) or not (arrow.is_text(column.type) or pa.types.is_integer(column.type)):
            continue
        agents = pl.Series("agent", column).gather(rows.steps["at"])
        several = rows.steps.select("id", agent=agents).drop_nulls().unique().group_by("id").agg("agent")
        several = several.filter(pl.col("agent").list.len() > 1).sort("id")
        refused = rows.steps.join(several, left_on="id", right_on="id", how="semi", maintain_order="left")
        parts = refused.partition_by("id", as_dict=True, maintain_order=True)
        for number, names in several.iter_rows():
            own = rows.with_steps(parts[number,])
            refuse(own, _several_agents(own, name, sorted(names, key=str)))
        rows = rows.without_ids(several["id"])
    return rows


def _several_agents(rows: Rows, name: str, agents: list[str | int]) -> EpisodeError:
    more = len(agents) - MAX_SHOWN_AGENTS
    shown = ", ".join(map(str, agents[:MAX_SHOWN_AGENTS])) + (f" and {more:,} more" if more > 0 else "")
    source, eps_id = (str(rows.mapping.get(each, each)) for each in (name, columns.EPS_ID))
    is_text = isinstance(agents[0], str)
    is_number = is_text and str(agents[0]).isdecimal()  # or was one before it became an id
    value, of = (f"'{agents[0]}'" if is_text else agents[0]), f"cast({source} as text)" if is_number else source
    one = f'source: {{where: "{of} = {value}"}}'
    kept = f", episode: {eps_id}" if eps_id == columns.EPS_ID else ""
    each = f"columns: {{computed: {{by_agent: \"{eps_id} || '/' || {source}\"}}}}, mapping: {{eps_id: by_agent{kept}}}"
    by_agent = f" To make an episode of each agent's steps: {each}." if rows.ids is not None else ""
    episode = f"The episode of {rows.where(0)}" if rows.ids is None else f"Episode {rows.name(0)}"
    return EpisodeError(
        f"{episode} has steps of {len(agents)} agents in column {source}: {shown}. To take one: {one}.{by_agent} If the column "
        "names no agents, map it to another name."
    )


def _count_times(rows: Rows, unit: int, counts: Counts) -> None:
    """Count gaps in time, and ids whose rows alternate between files."""
    counts.time_gaps = int(rows.steps["gap"].sum())
    took = rows.steps.select(T.diff().filter(pl.col("gap"))).to_series().to_numpy()
    if len(took):
        counts.shortest_time_gap, counts.longest_time_gap = float(took.min()) / unit, float(took.max()) / unit
    is_told = rows.has_new_obs or rows.ids is None or (rows.steps["file"] == STORED).any()  # late rows may lie anywhere
    counts.alternating_ids = 0 if is_told else alternating(rows.steps["id"].to_numpy(), rows.steps["file"].to_numpy())


def _completed(rows: Rows, rules: EpisodesConfig, counts: Counts, *, order: str) -> Rows:
    """The lines of all rows with what their episodes are.

    number    its t in the episode
    name      of the episode
    source_terminated, source_truncated
              flags of the source
    is_open   the episode ends here, without a flag of the source
    kept      the row is a step of an episode
    next      number of the row in `table` that holds the observation after it, where there is no new_obs
    """
    line, starts = pl.int_range(pl.len()), pl.col("starts")
    steps = rows.steps.with_columns(
        part=starts.cum_sum(),
        last=starts.shift(-1, fill_value=True),
        later=starts & SAME_ID,  # the part before it has the same id
        ended=DONE.shift(fill_value=True) | pl.col("gap") | BEGINS,  # … and ended, or this row begins another episode anyway
        source_terminated=TERMINATED,
        source_truncated=TRUNCATED,
    )
    steps = steps.with_columns(
        number=T if order == "t" else line - line.filter(starts).gather(pl.col("part") - 1),
        broken=pl.col("later") & ~pl.col("ended"),  # steps are missing between them
        is_open=pl.col("last") & ~DONE,
    )
    number, part, last, later, broken = (pl.col(name) for name in ("number", "part", "last", "later", "broken"))
    following = number.shift(fill_value=0) + 1
    steps = steps.with_columns(
        late=starts & ~broken & (number != pl.when(later).then(following).otherwise(0)) & (number != 0),
        episode=(starts & ~broken).cum_sum(),
        began=pl.when(later & (number > 0)).then(following).otherwise(0),  # where its episode began, in its first line
    )
    counts.terminations = int(steps["terminated"].sum())
    names = _names(rows.with_steps(steps), order)
    if (limit := rules.time_limit_steps) is not None:
        so_far = number - pl.col("began").first().over("episode") + (~FINAL).cast(pl.Int64)
        at_limit = TERMINATED & (so_far >= limit)
        counts.time_limits = int(steps.select(at_limit.sum()).item())
        steps = steps.with_columns(terminated=TERMINATED & ~at_limit, truncated=TRUNCATED | at_limit)
    kept = pl.lit(True)
    if order != "single_step":
        counts.open_ends, counts.gaps, counts.late_starts = (int(steps[name].sum()) for name in ("is_open", "broken", "late"))
        counts.restarted_ids = int(steps.select((later & ~broken).sum()).item()) - counts.time_gaps
        if rules.incomplete == "cut":
            steps = steps.with_columns(
                number=line - line.filter(starts).gather(part - 1), truncated=TRUNCATED | pl.col("is_open")
            )
        if rules.incomplete == "drop":
            kept = ~(pl.col("late") | pl.col("is_open")).any().over("episode")
    steps = steps.with_columns(kept=kept)
    if rules.incomplete == "drop":
        dropped = steps.filter(~pl.col("kept"))
        counts.dropped_steps, counts.dropped_episodes = len(dropped), dropped["episode"].n_unique()
    steps = steps.with_columns(next=pl.when(last).then("at").otherwise(pl.col("at").shift(-1)))
    if not rows.has_new_obs:
        steps = _with_next_observations(steps, counts, drops_last=rules.last_new_obs == "drop")
    return rows.with_steps(steps.with_columns(name=pl.lit(names).gather(part - 1)))


def _names(rows: Rows, order: str) -> pl.Series:
    """An id a part: its own, that of its first step for later ones; a hash of its origin where there is none."""
    if rows.ids is None:
        places = rows.parts().select("file", "row").iter_rows()
        return pl.Series([hashed(f"{rows.files[file]}:{row}", 16) for file, row in places], dtype=pl.String)
    steps = rows.steps
    if order != "t":  # the number of the step under its id
        line = pl.int_range(pl.len())
        steps = steps.with_columns(t=line - line.filter(~SAME_ID).gather((~SAME_ID).cum_sum() - 1))
    parts = steps.filter("starts").select("id", "later", "t").iter_rows()
    names = [id_of_part(rows.ids[id], t) if later else rows.ids[id] for id, later, t in parts]
    return pl.Series(names, dtype=pl.String)


def _with_next_observations(steps: pl.DataFrame, counts: Counts, *, drops_last: bool) -> pl.DataFrame:
    """The lines with what they keep, where the next observation is the obs of the next row.

    A last row that is no step gives the one before it its obs and its end. Else the last step of a part has no next one: its
    own obs is repeated. With `drops_last` only terminations are repeated so, whose next observation no value is ever taken of.
    Other parts lose their last step and end at the one before, as in `d4rl.qlearning_dataset`.
    """
    kept, last = pl.col("kept"), pl.col("last")
    steps = steps.with_columns(final=FINAL & kept)
    steps = steps.with_columns(dropped=last & ~TERMINATED & kept & ~FINAL & drops_last)
    gone = pl.col("dropped") | FINAL
    counts.final_observations, counts.dropped_last_steps = int(steps["final"].sum()), int(steps["dropped"].sum())
    counts.repeated_last_obs = int(steps.select((last & kept & ~gone).sum()).item())
    counts.dropped_episodes += int(steps.select((last & pl.col("starts") & gone).sum()).item())
    has_final = (FINAL & last).shift(-1, fill_value=False) & ~last
    ends = gone & TRUNCATED
    return steps.with_columns(
        truncated=TRUNCATED | pl.when(last).then(ends).otherwise(ends.shift(-1, fill_value=False)),
        terminated=TERMINATED | (has_final & TERMINATED.shift(-1, fill_value=False)),
        kept=kept & ~gone,
    )


def _episodes(rows: Rows) -> list[Episode]:
    steps = rows.steps.filter("kept")
    table = rows.with_steps(steps).taken()
    if not rows.has_new_obs:
        following = rows.table[columns.OBS].take(steps["next"].to_arrow())
        table = table.append_column(pa.field(columns.NEW_OBS, following.type, nullable=False), following)
    own = {columns.EPS_ID: "name", columns.T: "number", columns.TERMINATEDS: "terminated", columns.TRUNCATEDS: "truncated"}
    for name, short in own.items():
        table = table.append_column(name, steps[short].to_arrow())
    return table_to_episodes(table)


def _place(file: Any, row: Any) -> Any:
    """One number that grows with the file and the row in it."""
    return (file << 40) + row


def _is_empty(column: pa.ChunkedArray) -> np.ndarray:
    """(N,) bool: there is no map in the row, or an empty one."""
    return pc.fill_null(pc.equal(column, EMPTY_MAP), True).to_numpy()  # type: ignore[no-any-return]
