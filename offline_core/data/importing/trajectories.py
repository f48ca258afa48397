"""Assemble rows of steps into whole episodes, and count what became of every row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import gymnasium as gym
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offline_core.data.episodes import Episode, columns, nested, table_to_episodes
from offline_core.data.episodes.arrow import read_column, to_arrow
from offline_core.data.episodes.mapping import ColumnMapping
from offline_core.data.formats.sources.scans import SOURCE_ROW
from offline_core.data.importing.agents import of_one_agent
from offline_core.data.importing.config import EpisodesConfig
from offline_core.data.importing.cuts import Remainder
from offline_core.data.importing.episode_ids import SOURCE_FILE, hashed, id_of_part, named
from offline_core.data.importing.ordering import Refuse, SourceRows, put_in_order
from offline_core.data.importing.report import Counts, Unreadable
from offline_core.data.importing.times import NANOSECONDS, alternating, has_timestamps
from offline_core.errors import EpisodeError

Spaces = tuple[gym.Space[Any] | None, gym.Space[Any] | None]


@dataclass(frozen=True, slots=True)
class Parts:
    """P runs of steps that follow one another: an episode each, unless steps are missing."""

    first: np.ndarray
    """(P,) the number of the first step."""
    length: np.ndarray
    later: np.ndarray
    """(P,) bool: the part before it has the same id."""
    broken: np.ndarray
    """(P,) bool: … and does not end, so steps are missing between them."""
    late: np.ndarray
    """(P,) bool: steps are missing before it, at the start of an episode."""
    is_open: np.ndarray
    """(P,) bool: its last step does not end the episode."""

    @classmethod
    def of(cls, steps: SourceRows, starts: np.ndarray, t: np.ndarray, apart: np.ndarray) -> Parts:
        """`apart`: (N,) bool, the step begins another episode, though the one before it does not end."""
        first = np.flatnonzero(starts)
        length = np.diff(np.append(first, len(steps)))
        before = first - 1  # of the very first one: the last step, whose group is its own only if there is no other
        later = steps.group[first] == steps.group[before]
        later[0] = False
        broken = later & ~steps.done[before] & ~apart[first]
        late = ~broken & (t[first] != np.where(later, t[before] + 1, 0)) & (t[first] != 0)
        return cls(first, length, later, broken, late, ~steps.done[first + length - 1])

    @property
    def last(self) -> np.ndarray:
        """(P,) the number of the last step."""
        return self.first + self.length - 1  # type: ignore[no-any-return]

    def per_step(self, values: np.ndarray) -> np.ndarray:
        """(N,) for each step the value of its part."""
        return np.repeat(values, self.length)

    def episode(self) -> np.ndarray:
        """(P,) int: parts between which steps are missing share one."""
        return np.cumsum(~self.broken) - 1

    def began(self, t: np.ndarray) -> np.ndarray:
        """(P,) the t at which the part's episode began: zero, or after the end before it if t goes on under its id."""
        first = np.where(self.later & (t[self.first] > 0), t[self.first - 1] + 1, 0)
        return first[~self.broken][self.episode()]  # type: ignore[no-any-return]


def assemble(
    table: pa.Table,
    rules: EpisodesConfig,
    *,
    order: str,
    files: Sequence[str],
    spaces: Spaces,
    refuse: Callable[[Unreadable], None],
    lost: Sequence[tuple[int, int]] = (),
    mapping: ColumnMapping = MappingProxyType({}),
    in_order: Callable[[pa.Table, np.ndarray], pa.Table] | None = None,
    remainder: Remainder | None = None,
) -> tuple[list[Episode], Counts]:
    """The episodes of a canonical step table, those first whose first row comes first.

    Arguments:
        table: columns of `columns.STEP_COLUMNS` as far as there are any, `SOURCE_FILE` and `SOURCE_ROW`, and extras. All
            rows of an episode are in it.
        order: as `order_of` says.
        files: URIs by `SOURCE_FILE`, for messages and for ids of episodes that have none.
        refuse: is given the rows of episodes in which different rows claim the same place, or one a place before the
            first, and may raise; they are not counted.
        lost: (file, row) of what could not be read.
        mapping: what columns are called in the source, for messages.
        in_order: makes columns of earlier rows, given rows in order and (N,) bool which of them follow none.
        remainder: takes note of what an append needs; rows have ids, and t or times.

    Raises:
        EpisodeError: the steps cannot be put in order.
        NonFiniteError: a value is NaN or infinite.
    """
    counts = Counts(rows=table.num_rows)

    def left_out(rows: SourceRows, error: EpisodeError) -> None:
        counts.rows -= len(rows)
        for file in np.unique(rows.file):
            inside = rows.file == file
            refuse(Unreadable(files[file], None, int(inside.sum()), error, int(rows.terminated[inside].sum())))

    steps = _steps(table, rules, files, lost)
    unit = NANOSECONDS if has_timestamps(table) else 1
    max_gap = None if rules.max_gap is None else rules.max_gap * unit
    if steps.ids is not None and order != "single_step":
        steps = of_one_agent(steps, mapping, files, left_out)
    if order == "t":
        steps = _numbered(steps, rules.first_t, files, left_out)
    if len(steps):
        steps, starts, counts.duplicates, counts.ambiguous_links, found = put_in_order(steps, order, files, left_out, max_gap)
    if len(steps) and steps.ids is None and order != "single_step":
        whole = of_one_agent(steps, mapping, files, left_out)
        kept = np.isin(steps.group, whole.group)
        steps, starts, found = whole, starts[kept], None if found is None else found[kept]
    if len(steps) == 0:
        return [], counts
    if in_order is not None:
        steps = replace(steps, table=in_order(steps.table, starts))
    gaps = np.zeros(len(steps), bool) if found is None else found
    if order == "time":
        counts.time_gaps = int(gaps.sum())
        counts.shortest_time_gap = min((np.diff(steps.t)[gaps[1:]] / unit).tolist(), default=None)
        is_told = columns.NEW_OBS in table.column_names or steps.ids is None
        counts.alternating_ids = 0 if is_told else alternating(steps.group, steps.file)
        if columns.TIME not in table.column_names:
            steps = replace(steps, table=steps.table.append_column(columns.TIME, pa.array(steps.t)))
    counts.terminations = int(steps.terminated.sum())
    source = steps
    t = steps.t if order == "t" else _from_zero(starts)
    parts = Parts.of(steps, starts, t, gaps | steps.begins)
    if rules.time_limit_steps is not None:
        steps, counts.time_limits = _with_time_limit(steps, t - parts.per_step(parts.began(t)), rules.time_limit_steps)
    in_id = t if order == "t" else _from_zero(np.append(True, np.diff(steps.group) != 0))
    ids = _ids(steps, parts, in_id[parts.first], files)
    kept = np.ones(len(ids), bool)
    if order != "single_step":
        steps, t, kept = _complete(steps, t, parts, rules, counts)
    kept = parts.per_step(kept)
    if columns.NEW_OBS not in steps.table.column_names:
        drop_last = rules.last_new_obs == "drop"
        steps, kept = add_next_observations(steps, parts.last, kept, drop_last=drop_last, counts=counts)
    if remainder is not None:
        remainder.add(source, parts.first, parts.last, parts.is_open, ids, kept)
    episodes = _episodes(steps, t, pa.array(ids).take(pa.array(parts.per_step(np.arange(len(ids))))), kept)
    episodes = [replace(e, observation_space=spaces[0], action_space=spaces[1]).validate() for e in episodes]
    counts.episodes, counts.steps = len(episodes), sum(map(len, episodes))
    return episodes, counts


def _steps(table: pa.Table, rules: EpisodesConfig, files: Sequence[str], lost: Sequence[tuple[int, int]]) -> SourceRows:
    """The rows in the order of the source."""
    count = table.num_rows
    file, row = (table[name].to_numpy().astype(np.int64) for name in (SOURCE_FILE, SOURCE_ROW))
    if ((np.diff(file) < 0) | (np.diff(file) == 0) & (np.diff(row) < 0)).any():
        rows = np.lexsort((row, file))
        table, file, row = table.take(pa.array(rows)), file[rows], row[rows]
    flags = (columns.TERMINATEDS, columns.TRUNCATEDS, columns.IS_FIRST, columns.IS_LAST)
    terminated, truncated, begins, final = (
        pc.fill_null(table[name], False).to_numpy() if name in table.column_names else np.zeros(count, bool) for name in flags
    )
    t = read_column(table, columns.T).reshape(count) if columns.T in table.column_names else np.zeros(count, np.int64)
    ids, group = None, np.zeros(count, np.int64)
    if columns.EPS_ID in table.column_names:
        ids, group = named(table[columns.EPS_ID], file, t, files, rules.ids_per)
    taken = {columns.EPS_ID, columns.T, *flags, SOURCE_FILE, SOURCE_ROW}
    empty = {name for name in (columns.INFOS,) if name in table.column_names and table[name].null_count == count}
    rest = table.drop_columns([name for name in table.column_names if name in taken | empty])
    before = np.searchsorted(np.sort([_place(*each) for each in lost]), _place(file, row))
    return SourceRows(rest, ids, group, t, terminated, truncated, begins, final, file, row, before)


def _place(file: Any, row: Any) -> Any:
    """One number that grows with the file and the row in it."""
    return (file << 40) + row


def _numbered(steps: SourceRows, first: int, files: Sequence[str], refuse: Refuse) -> SourceRows:
    """The steps with their t counted from `first`; episodes with one before it are refused.

    Raises:
        EpisodeError: a t is no whole number.
    """
    t = steps.t.astype(np.int64)
    if len(between := np.flatnonzero(t != steps.t)):
        at = int(between[0])
        raise EpisodeError(f"t is {steps.t[at]} in {steps.where(at, files)} and numbers no step; set episodes.order: time.")
    steps = replace(steps, t=t - first)
    early = steps.t < 0
    if not early.any():
        return steps
    at = int(np.argmin(steps.t))
    error = EpisodeError(
        f"t is {t[at]} in {steps.where(at, files)}, before the first one, which is {first}. Set episodes.first_t to the t of "
        "an episode's first step."
    )
    refused = early if steps.ids is None else np.isin(steps.group, steps.group[early])
    refuse(steps.take(np.flatnonzero(refused)), error)
    return steps.take(np.flatnonzero(~refused))


def _with_time_limit(steps: SourceRows, t: np.ndarray, limit: int) -> tuple[SourceRows, int]:
    """(the steps, with ends at the limit made truncations, how many these were)."""
    at_limit = steps.terminated & (t + ~steps.final >= limit)
    return replace(steps, terminated=steps.terminated & ~at_limit, truncated=steps.truncated | at_limit), int(at_limit.sum())


def _complete(
    steps: SourceRows, t: np.ndarray, parts: Parts, rules: EpisodesConfig, counts: Counts
) -> tuple[SourceRows, np.ndarray, np.ndarray]:
    """(steps, t, (P,) bool which parts are kept) under the rule for incomplete episodes; counts what there was."""
    counts.open_ends, counts.gaps, counts.late_starts = (int(x.sum()) for x in (parts.is_open, parts.broken, parts.late))
    counts.restarted_ids = int((parts.later & ~parts.broken).sum()) - counts.time_gaps
    kept = np.ones(len(parts.first), bool)
    if rules.incomplete == "cut":
        truncated = steps.truncated.copy()
        truncated[parts.last[parts.is_open]] = True
        return replace(steps, truncated=truncated), np.arange(len(steps)) - parts.per_step(parts.first), kept
    if rules.incomplete == "drop":
        episode = parts.episode()
        kept = np.bincount(episode, weights=parts.late | parts.is_open)[episode] == 0
        counts.dropped_episodes, counts.dropped_steps = len(np.unique(episode[~kept])), int(parts.length[~kept].sum())
    return steps, t, kept


def _ids(steps: SourceRows, parts: Parts, before: np.ndarray, files: Sequence[str]) -> list[str]:
    """One id a part: its own, that of its first step for later ones; a hash of its origin where there is none."""
    if steps.ids is None:
        return [hashed(f"{files[steps.file[i]]}:{steps.row[i]}", 16) for i in parts.first]
    names = (steps.ids[group] for group in steps.group[parts.first])
    return [id_of_part(name, t) if later else name for name, later, t in zip(names, parts.later, before.tolist(), strict=True)]


def _episodes(steps: SourceRows, t: np.ndarray, ids: pa.Array, kept: np.ndarray) -> list[Episode]:
    table = steps.table
    own = {columns.EPS_ID: ids, columns.T: t.astype(np.int64)}
    own |= {columns.TERMINATEDS: steps.terminated, columns.TRUNCATEDS: steps.truncated}
    for name, values in own.items():
        table = table.append_column(name, pa.array(values))
    return table_to_episodes(table if kept.all() else table.filter(pa.array(kept)))


def _from_zero(starts: np.ndarray) -> np.ndarray:
    """(N,) the number of each step since the last start."""
    every = np.arange(len(starts))
    return every - np.maximum.accumulate(np.where(starts, every, 0))


def add_next_observations(
    steps: SourceRows, last: np.ndarray, kept: np.ndarray, *, drop_last: bool, counts: Counts
) -> tuple[SourceRows, np.ndarray]:
    """(the steps with `new_obs`, (N,) bool which of them are kept).

    A last row that is no step gives the one before it its obs and its end. Else the last step of a part has no next one: its
    own obs is repeated. With `drop_last` only terminations are repeated so, whose
    next observation no value is ever taken of. Other parts lose their last step and end at the one before, as in
    `d4rl.qlearning_dataset`.

    Arguments:
        last: (P,) the number of the last step of each part.
        kept: (N,) bool.
        counts: what becomes of the ends is added.
    """
    is_last = np.zeros(len(steps), bool)
    is_last[last] = True
    following = np.arange(len(steps)) + ~is_last
    obs = read_column(steps.table, columns.OBS)
    new_obs = to_arrow(nested.map_leaves(lambda array: array[following], obs), columns.NEW_OBS)
    table = steps.table.append_column(pa.field(columns.NEW_OBS, new_obs.type, nullable=False), new_obs)
    final = steps.final & kept
    dropped = is_last & ~steps.terminated & kept & ~final & drop_last
    counts.final_observations = int(final.sum())
    counts.dropped_last_steps = int(dropped.sum())
    has_final = (final & is_last)[following] & ~is_last
    counts.repeated_last_obs = int((is_last & kept & ~dropped & ~final).sum())
    dropped |= final
    counts.dropped_episodes += int((dropped[last] & (np.diff(last, prepend=-1) == 1)).sum())
    truncated = steps.truncated | (dropped & steps.truncated)[following]
    terminated = steps.terminated | (has_final & steps.terminated[following])
    return replace(steps, table=table, terminated=terminated, truncated=truncated), kept & ~dropped
