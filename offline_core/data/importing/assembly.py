"""Rows of a source, in canonical columns → whole episodes, and what became of every row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from offline_core.data.episodes import Episode, arrow, columns, table_to_episodes
from offline_core.data.episodes.spaces import StoredSpaces
from offline_core.data.formats.sources.names import named
from offline_core.data.formats.sources.step_reader import Unreadable
from offline_core.data.importing.config import EpisodesConfig
from offline_core.data.importing.episode_ids import hashed, id_of_part
from offline_core.data.importing.losses import SAME_ID, THEN_LOST
from offline_core.data.importing.mapping import ColumnMapping, sources_of
from offline_core.data.importing.report import Counts, Findings
from offline_core.data.importing.rows import (
    BEGINS,
    DONE,
    FILE,
    FINAL,
    ID,
    STORED,
    TERMINATED,
    TRUNCATED,
    Refuse,
    SourceRows,
    T,
    ids_set_back,
    put_in_order,
    repeated,
)
from offline_core.data.importing.times import NANOSECONDS, alternating, has_timestamps
from offline_core.errors import EpisodeError
from offline_core.runtime.units import list_text

MAX_SHOWN_AGENTS = 5


class Assembled(NamedTuple):
    """What rows became."""

    episodes: list[Episode]
    """The episodes in the order of their first rows."""
    counts: Counts
    rows: SourceRows | None = None
    """The rows in order, with `name`, `is_open` and `kept`, of which `stored.Remainder` takes note; None if there are none."""


def assemble(
    table: pa.Table,
    rules: EpisodesConfig,
    *,
    order: str,
    files: Sequence[str],
    spaces: StoredSpaces,
    findings: Findings,
    mapping: ColumnMapping,
    in_order: Callable[[pa.Table, np.ndarray], pa.Table],
) -> Assembled:
    """Build the episodes of a canonical step table.

    Arguments:
        table: columns of `columns.STEP_COLUMNS` as far as there are any, `SOURCE_FILE`, `SOURCE_ROW` and `LOSSES`, and
            extras. All rows of an episode are in it, under the id that it has in the dataset; those of the file `STORED` are
            of the version that is appended to.
        order: as `order_of` says.
        files: URIs by `SOURCE_FILE`, for messages and for ids of episodes that have none.
        findings: episodes are added to it, and not counted, if different rows claim the same step, or a row claims a step
            before the first.
        mapping: what columns are called in the source, for messages.
        in_order: makes columns of earlier rows, given rows in order and (N,) bool which of them follow none.

    Raises:
        EpisodeError: the steps cannot be put in order.
        NonFiniteError: a value is NaN or infinite.
    """
    counts = Counts(rows=table.num_rows)

    def left_out(rows: SourceRows, error: EpisodeError) -> None:
        new = rows.steps.filter(FILE != STORED)  # what is stored stays as it is
        counts.rows -= len(rows)
        for file, number, terminated in new.group_by("file", maintain_order=True).agg(pl.len(), TERMINATED.sum()).iter_rows():
            findings.refuse(Unreadable(files[file], None, number, error, terminated))

    rows = SourceRows.of(table, files, mapping)
    if order == "single_step" and not {columns.NEW_OBS, columns.TERMINATEDS, columns.TRUNCATEDS} & {*table.column_names}:
        counts.lone_rows = len(rows)  # of a click or an offer nothing follows
        rows = rows.with_steps(rows.steps.with_columns(terminated=pl.lit(True)))
    is_clock = has_timestamps(table)
    unit = NANOSECONDS if is_clock else 1
    max_gap = None if rules.max_gap is None else rules.max_gap * unit
    # Where nothing is ordered by t, it holds times if these are timestamps, or if the longest gap of numbers is declared.
    shows_gaps = columns.T in table.column_names and (is_clock or max_gap is not None)
    is_timed = order == "time" or (order == "stored" and shows_gaps)
    if rows.ids is not None and order != "single_step":
        rows = _of_one_agent(rows, left_out)
    if order == "t":
        rows = _from_first_t(rows, rules.first_t, left_out)
    if len(rows):
        counts.repeated_rows = repeated(rows) if order == "single_step" else 0
        rows, counts.ambiguous_links = put_in_order(rows, order, left_out, max_gap, is_timed=is_timed)
        counts.duplicates = counts.rows - len(rows)
    if len(rows) and rows.ids is None and order != "single_step":
        rows = _of_one_agent(rows, left_out)
    if len(rows) == 0:
        return Assembled([], counts)
    rows = rows.gathered()
    rows = replace(rows, table=in_order(rows.table, rows.steps["starts"].to_numpy()))
    if is_timed:
        _count_times(rows, unit, counts)
        if order == "time" and is_clock and not rows.has_new_obs:
            counts.set_back_ids = ids_set_back(rows)
    if (is_timed or (order == "single_step" and is_clock)) and columns.TIME not in table.column_names:
        rows = replace(rows, table=rows.table.append_column(columns.TIME, rows.steps["t"].to_arrow()))
    rows = _completed(rows, rules, counts, order=order)
    episodes = [replace(episode, observation_space=spaces[0], action_space=spaces[1]).validate() for episode in _episodes(rows)]
    return Assembled(episodes, counts, rows)


def _from_first_t(rows: SourceRows, first: int, refuse: Refuse) -> SourceRows:
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


def _of_one_agent(rows: SourceRows, refuse: Refuse) -> SourceRows:
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


def _several_agents(rows: SourceRows, name: str, agents: list[str | int]) -> EpisodeError:
    shown = list_text(agents, MAX_SHOWN_AGENTS)
    [source], eps_ids = (sources_of(rows.mapping, [column]) for column in (name, columns.EPS_ID))
    is_text = isinstance(agents[0], str)
    is_number = is_text and str(agents[0]).isdecimal()  # or was one before it became an id
    value, of = (f"'{agents[0]}'" if is_text else agents[0]), f"cast({source} as text)" if is_number else source
    one = f'source: {{where: "{of} = {value}"}}'
    yaml = f"mapping: {{eps_id: [{', '.join([*eps_ids, source])}]}}"
    by_agent = f" To make an episode of each agent's steps: {yaml}." if rows.ids is not None else ""
    episode = f"The episode of {rows.where(0)}" if rows.ids is None else f"Episode {rows.name(0)}"
    return EpisodeError(
        f"{episode} has steps of {len(agents)} agents in column {source}: {shown}. To take one: {one}.{by_agent} If the column "
        "names no agents, map it to another name."
    )


def _count_times(rows: SourceRows, unit: int, counts: Counts) -> None:
    """Count gaps in time, and ids whose rows alternate between files."""
    counts.time_gaps = int(rows.steps["gap"].sum())
    took = rows.steps.select(T.diff().filter(pl.col("gap"))).to_series().to_numpy()
    if len(took):
        counts.shortest_time_gap, counts.longest_time_gap = float(took.min()) / unit, float(took.max()) / unit
    is_told = rows.has_new_obs or rows.ids is None or (rows.steps["file"] == STORED).any()  # late rows may lie anywhere
    counts.alternating_ids = 0 if is_told else alternating(rows.steps["id"].to_numpy(), rows.steps["file"].to_numpy())


def _completed(rows: SourceRows, rules: EpisodesConfig, counts: Counts, *, order: str) -> SourceRows:
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
    at_limit = pl.lit(False)
    if (limit := rules.time_limit_steps) is not None:
        at_limit = number - pl.col("began").first().over("episode") + (~FINAL).cast(pl.Int64) >= limit
        counts.time_limits = int(steps.select((TERMINATED & at_limit).sum()).item())
    declared = pl.lit(rules.incomplete == "end" and order != "single_step")
    # Chains of links lie in the order of their first rows, so which of an id's parts is its last is not known.
    breaks_off = broken.any().over("id") if order == "linked" else broken.shift(-1, fill_value=False)
    steps = steps.with_columns(
        terminated=TERMINATED & ~at_limit,
        truncated=TRUNCATED | (TERMINATED & at_limit),
        is_declared=declared & pl.col("is_open") & ~breaks_off & ~pl.col(THEN_LOST) & ~FINAL & ~at_limit,
    )
    kept = pl.lit(True)
    if order != "single_step":
        counts.open_ends, counts.gaps, counts.late_starts = (int(steps[name].sum()) for name in ("is_open", "broken", "late"))
        counts.restarted_ids = int(steps.select((later & ~broken).sum()).item()) - counts.time_gaps
        counts.declared_ends = int(steps["is_declared"].sum())
        if rules.incomplete in ("cut", "end"):
            steps = steps.with_columns(
                number=line - line.filter(starts).gather(part - 1),
                terminated=TERMINATED | pl.col("is_declared"),
                truncated=TRUNCATED | (pl.col("is_open") & ~pl.col("is_declared")),
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


def _names(rows: SourceRows, order: str) -> pl.Series:
    """An id a part: its own, that of its first step for later ones; a hash of its origin where there is none."""
    if rows.ids is None:
        places = rows.steps.filter("starts").select("file", "row").iter_rows()
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


def _episodes(rows: SourceRows) -> list[Episode]:
    steps = rows.steps.filter("kept")
    table = rows.with_steps(steps).taken()
    if not rows.has_new_obs:
        following = rows.table[columns.OBS].take(steps["next"].to_arrow())
        table = table.append_column(pa.field(columns.NEW_OBS, following.type, nullable=False), following)
    own = {columns.EPS_ID: "name", columns.T: "number", columns.TERMINATEDS: "terminated", columns.TRUNCATEDS: "truncated"}
    for name, short in own.items():
        table = table.append_column(name, steps[short].to_arrow())
    return table_to_episodes(table)
