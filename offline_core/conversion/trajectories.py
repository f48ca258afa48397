"""Rows of steps → whole episodes, and what became of every row."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym
import numpy as np
import pyarrow as pa

from offline_core.conversion.config import EpisodesConfig
from offline_core.conversion.ordering import Refuse, Steps, put_in_order
from offline_core.conversion.report import Counts
from offline_core.conversion.unreadable import Unreadable
from offline_core.episodes import Episode, columns, nested, table_to_episodes
from offline_core.episodes.arrow import read_column, to_arrow
from offline_core.errors import EpisodeError
from offline_core.storage.sources.scans import SOURCE_ROW

SOURCE_FILE = "_source_file"
"""A column beside the step columns: the number of the file in the source."""

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
    def of(cls, steps: Steps, starts: np.ndarray, t: np.ndarray) -> Parts:
        first = np.flatnonzero(starts)
        length = np.diff(np.append(first, len(steps)))
        before = first - 1  # of the very first one: the last step, whose group is its own only if there is no other
        later = steps.group[first] == steps.group[before]
        later[0] = False
        broken = later & ~steps.done[before]
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
) -> tuple[list[Episode], Counts]:
    """The episodes of a canonical step table, those first whose first row comes first.

    Arguments:
        table: columns of `columns.STEP_COLUMNS` as far as there are any, `SOURCE_FILE` and `SOURCE_ROW`, and extras. All
            rows of an episode are in it.
        order: as `order_of` says.
        files: URIs by `SOURCE_FILE`, for messages and for ids of episodes that have none.
        refuse: is given the rows of episodes in which different rows claim the same place, or one a place before the
            first, and may raise; they are not counted.
        lost: (file, row) of what could not be read, ascending.

    Raises:
        EpisodeError: the steps cannot be put in order.
        NonFiniteError: a value is NaN or infinite.
    """
    counts = Counts(rows=table.num_rows)

    def left_out(rows: Steps, error: EpisodeError) -> None:
        counts.rows -= len(rows)
        for file, count in zip(*np.unique(rows.file, return_counts=True), strict=True):
            refuse(Unreadable(files[file], None, int(count), error))

    steps = _steps(table, rules, files, lost)
    if order == "t":
        steps = _numbered(steps, rules.first_t, files, left_out)
    if len(steps):
        steps, starts, counts.duplicates, counts.ambiguous_links = put_in_order(steps, order, files, left_out)
    if len(steps) == 0:
        return [], counts
    if columns.NEW_OBS not in steps.table.column_names:
        steps, starts, counts.dropped_last_steps = _with_new_obs(steps, starts, drop_last=rules.last_new_obs == "drop")
        if len(steps) == 0:
            return [], counts
    t = steps.t if order == "t" else _from_zero(starts)
    parts = Parts.of(steps, starts, t)
    if rules.time_limit_steps is not None:
        steps, counts.time_limits = _with_time_limit(steps, t - parts.per_step(parts.began(t)), rules.time_limit_steps)
    in_id = t if order == "t" else _from_zero(np.append(True, np.diff(steps.group) != 0))
    ids = _ids(steps, parts, in_id[parts.first], files)
    kept = np.ones(len(ids), bool)
    if order != "single_step":
        steps, t, kept = _complete(steps, t, parts, rules, counts)
    episodes = _episodes(steps, t, pa.array(ids).take(pa.array(parts.per_step(np.arange(len(ids))))), parts.per_step(kept))
    episodes = [replace(e, observation_space=spaces[0], action_space=spaces[1]).validate() for e in episodes]
    counts.episodes, counts.steps = len(episodes), sum(map(len, episodes))
    return episodes, counts


def _steps(table: pa.Table, rules: EpisodesConfig, files: Sequence[str], lost: Sequence[tuple[int, int]]) -> Steps:
    """The rows in the order of the source."""
    count = table.num_rows
    file, row = (table[name].to_numpy().astype(np.int64) for name in (SOURCE_FILE, SOURCE_ROW))
    if ((np.diff(file) < 0) | (np.diff(file) == 0) & (np.diff(row) < 0)).any():
        rows = np.lexsort((row, file))
        table, file, row = table.take(pa.array(rows)), file[rows], row[rows]
    terminated, truncated = (
        table[name].to_numpy() if name in table.column_names else np.zeros(count, bool)
        for name in (columns.TERMINATEDS, columns.TRUNCATEDS)
    )
    t = read_column(table, columns.T).reshape(count) if columns.T in table.column_names else np.zeros(count, np.int64)
    ids, group = None, np.zeros(count, np.int64)
    if columns.EPS_ID in table.column_names:
        ids, group = _named(table[columns.EPS_ID], file, files, ids_per_file=rules.ids_per_file)
    taken = {columns.EPS_ID, columns.T, columns.TERMINATEDS, columns.TRUNCATEDS, SOURCE_FILE, SOURCE_ROW}
    empty = {name for name in (columns.INFOS,) if name in table.column_names and table[name].null_count == count}
    rest = table.drop_columns([name for name in table.column_names if name in taken | empty])
    before = np.searchsorted([_place(*each) for each in lost], _place(file, row))
    return Steps(rest, ids, group, t, terminated, truncated, file, row, before)


def _place(file: Any, row: Any) -> Any:
    """One number that grows with the file and the row in it."""
    return (file << 40) + row


def _numbered(steps: Steps, first: int, files: Sequence[str], refuse: Refuse) -> Steps:
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


def _named(
    column: pa.ChunkedArray, file: np.ndarray, files: Sequence[str], *, ids_per_file: bool
) -> tuple[list[str], np.ndarray]:
    """(ids in the order in which they appear, the number of each row's); per file they are `<id>@<hash of the file's URI>`."""
    encoded = column.combine_chunks().dictionary_encode()
    ids, group = encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)
    if not ids_per_file:
        return ids, group
    encoded = pa.array(group * len(files) + file).dictionary_encode()
    pairs = (divmod(code, len(files)) for code in encoded.dictionary.to_pylist())
    return [id_in_file(ids[id], files[number]) for id, number in pairs], encoded.indices.to_numpy().astype(np.int64)


def id_in_file(eps_id: str, uri: str) -> str:
    """An id that no other file has."""
    return f"{eps_id}@{_hashed(uri, 8)}"


def id_of_part(eps_id: str, t: int) -> str:
    """An id for what goes on at step t after an end or a gap; the hash is there lest an episode of the data has that id."""
    return f"{eps_id}@{t}-{_hashed(f'{eps_id}@{t}', 4)}"


def _with_new_obs(steps: Steps, starts: np.ndarray, *, drop_last: bool) -> tuple[Steps, np.ndarray, int]:
    """Adds `new_obs`, the obs of the next row; the last row of each run repeats its own, or is dropped.

    An episode without its last step is truncated at the one before.
    """
    last = np.append(starts[1:], True)
    following = np.arange(len(steps)) + ~last
    obs = read_column(steps.table, columns.OBS)
    new_obs = to_arrow(nested.map_leaves(lambda array: array[following], obs), columns.NEW_OBS)
    table = steps.table.append_column(pa.field(columns.NEW_OBS, new_obs.type, nullable=False), new_obs)
    steps = replace(steps, table=table)
    if not drop_last:
        return steps, starts, 0
    kept = np.flatnonzero(~last)
    steps = replace(steps, truncated=steps.truncated | steps.done[following]).take(kept)
    return steps, starts[kept], int(last.sum())


def _with_time_limit(steps: Steps, t: np.ndarray, limit: int) -> tuple[Steps, int]:
    """(the steps, with ends at the limit made truncations, how many these were)."""
    at_limit = steps.terminated & (t + 1 >= limit)
    return replace(steps, terminated=steps.terminated & ~at_limit, truncated=steps.truncated | at_limit), int(at_limit.sum())


def _complete(
    steps: Steps, t: np.ndarray, parts: Parts, rules: EpisodesConfig, counts: Counts
) -> tuple[Steps, np.ndarray, np.ndarray]:
    """(steps, t, (P,) bool which parts are kept) under the rule for incomplete episodes; counts what there was."""
    counts.open_ends, counts.gaps, counts.late_starts = (int(x.sum()) for x in (parts.is_open, parts.broken, parts.late))
    counts.restarted_ids = int((parts.later & ~parts.broken).sum())
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


def _ids(steps: Steps, parts: Parts, before: np.ndarray, files: Sequence[str]) -> list[str]:
    """One id a part: its own, that of its first step for later ones; a hash of its origin where there is none."""
    if steps.ids is None:
        return [_hashed(f"{files[steps.file[i]]}:{steps.row[i]}", 16) for i in parts.first]
    names = (steps.ids[group] for group in steps.group[parts.first])
    return [id_of_part(name, t) if later else name for name, later, t in zip(names, parts.later, before.tolist(), strict=True)]


def _episodes(steps: Steps, t: np.ndarray, ids: pa.Array, kept: np.ndarray) -> list[Episode]:
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


def _hashed(text: str, size: int) -> str:
    return hashlib.blake2b(text.encode(), digest_size=size).hexdigest()
