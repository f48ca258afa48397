"""Rows of steps → whole episodes: the one place that decides which steps follow which."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offline_core.conversion.config import EpisodesConfig
from offline_core.conversion.duplicates import distinct_rows, equal_rows
from offline_core.conversion.linking import chain, row_bytes
from offline_core.conversion.report import Counts
from offline_core.episodes import Episode, columns, nested, table_to_episodes
from offline_core.episodes.arrow import read_column, to_arrow
from offline_core.errors import ConfigError, EpisodeError, SchemaError
from offline_core.storage.sources.scans import SOURCE_ROW

SOURCE_FILE = "_source_file"
"""A column beside the step columns: the number of the file in the source."""

Spaces = tuple[gym.Space[Any] | None, gym.Space[Any] | None]


class Steps(NamedTuple):
    """Rows with what decides their order, taken out of the table once."""

    table: pa.Table
    group: np.ndarray
    """(N,) int: rows of one episode id share it, in the order in which ids appear."""
    t: np.ndarray | None
    done: np.ndarray
    file: np.ndarray
    row: np.ndarray


class InOrder(NamedTuple):
    """Rows in order."""

    rows: np.ndarray
    """Row numbers, episode after episode."""
    starts: np.ndarray
    """(len(rows),) bool: it does not follow the row before it."""


def order_of(rules: EpisodesConfig, schema: pa.Schema) -> str:
    """What `auto` stands for with these columns.

    Raises:
        ConfigError: the order cannot be had from these columns.
    """
    names = schema.names
    order: str = rules.order
    if order == "auto":
        if columns.T in names:
            order = "t" if pa.types.is_integer(schema.field(columns.T).type) else "time"
        else:
            order = "linked" if columns.NEW_OBS in names else "stored"
    if order in ("t", "time") and columns.T not in names:
        raise ConfigError(f"Rows cannot be ordered by {order}: no column is mapped to 't'.")
    if order == "t" and not pa.types.is_integer(schema.field(columns.T).type):
        raise ConfigError(f"Column 't' has type {schema.field(columns.T).type} and does not number steps; use order: time.")
    if order == "linked" and columns.NEW_OBS not in names:
        raise ConfigError("Rows cannot be linked without a column new_obs.")
    if columns.NEW_OBS not in names and rules.last_new_obs is None:
        raise ConfigError(
            "There is no column new_obs, so it is the obs of the next step; say what follows the last one by "
            "episodes.last_new_obs: repeat or drop."
        )
    if columns.NEW_OBS not in names and order == "single_step" and rules.last_new_obs == "drop":
        raise ConfigError("Single steps without new_obs would all be dropped; use last_new_obs: repeat.")
    if not {columns.EPS_ID, columns.TERMINATEDS, columns.TRUNCATEDS} & set(names) and order != "single_step":
        raise ConfigError(f"Nothing says where an episode ends: map a column to eps_id or to dones. There are {names}.")
    return order


def assemble(
    table: pa.Table, rules: EpisodesConfig, *, order: str, files: Sequence[str], spaces: Spaces
) -> tuple[list[Episode], Counts]:
    """The episodes of a canonical step table, those first whose first row comes first.

    Arguments:
        table: columns of `columns.STEP_COLUMNS` as far as there are any, `SOURCE_FILE` and `SOURCE_ROW`, and extras. All
            rows of an episode are in it.
        order: as `order_of` says.
        files: URIs by `SOURCE_FILE`, for messages and for ids of episodes that have none.

    Raises:
        EpisodeError: two different rows claim the same place in an episode.
        NonFiniteError: a value is NaN or infinite.
    """
    counts = Counts(rows=table.num_rows)
    if table.num_rows == 0:
        return [], counts
    steps = _steps(table, rules)
    sequence, counts.duplicates, counts.ambiguous_links = _ordered(steps, order, files)
    steps, starts = _taken(steps, sequence.rows), sequence.starts
    if columns.NEW_OBS not in steps.table.column_names:
        steps, starts, counts.dropped_last_steps = _with_new_obs(steps, starts, drop_last=rules.last_new_obs == "drop")
    if len(starts) == 0:
        return [], counts
    first = np.flatnonzero(starts)
    last = np.concatenate([first[1:], [len(starts)]]) - 1
    follows = np.concatenate([[False], steps.group[1:] == steps.group[:-1]])[first]  # a later part of the same id
    broken = follows & ~np.concatenate([[False], steps.done[:-1]])[first]  # … that does not come after an end
    counts.restarted_ids = int((follows & ~broken).sum()) if order != "single_step" and _has_ids(table) else 0
    t = _numbers(steps, first, rules, order)
    if order == "single_step":
        broken[:] = False
    late = t[first] != 0 if order == "t" else np.zeros(len(first), bool)
    counts.gaps = int(broken.sum())
    counts.late_starts = int((late & ~follows).sum())
    terminated, truncated = _flags(steps.table)
    if rules.time_limit_steps is not None:
        at_limit = last[(t[last] + 1 >= rules.time_limit_steps) & terminated[last]]
        counts.time_limits = len(at_limit)
        terminated[at_limit], truncated[at_limit] = False, True
    is_open = ~(terminated | truncated)[last]
    counts.open_ends = int(is_open.sum()) if order != "single_step" else 0
    kept = np.ones(len(first), bool)
    if order != "single_step" and rules.incomplete == "cut":
        truncated[last[is_open]] = True
        t = np.arange(len(starts)) - np.repeat(first, last - first + 1)
    elif order != "single_step" and rules.incomplete == "drop":
        whole = ~(broken | late | is_open)
        episode = np.cumsum(~broken) - 1  # parts of one episode go together
        kept = np.bincount(episode, weights=~whole)[episode] == 0
        counts.dropped_episodes, counts.dropped_steps = len(np.unique(episode[~kept])), int((last - first + 1)[~kept].sum())
    ids = _ids(steps, first, follows, t, files, has_ids=_has_ids(table), single=order == "single_step")
    lengths = last - first + 1
    result = _episode_table(
        steps.table, pa.array(ids).take(pa.array(np.repeat(np.arange(len(first)), lengths))), t, terminated, truncated
    )
    if not kept.all():
        result = result.filter(pa.array(np.repeat(kept, lengths)))
    episodes = [
        replace(episode, observation_space=spaces[0], action_space=spaces[1]).validate()
        for episode in table_to_episodes(result)
    ]
    counts.episodes, counts.steps = len(episodes), sum(map(len, episodes))
    return episodes, counts


def _steps(table: pa.Table, rules: EpisodesConfig) -> Steps:
    """The rows as they lie in the source."""
    file, row = (table[name].to_numpy() for name in (SOURCE_FILE, SOURCE_ROW))
    if (np.diff(file) < 0).any() or ((np.diff(file) == 0) & (np.diff(row.astype(np.int64)) < 0)).any():
        order = np.lexsort((row, file))
        table, file, row = table.take(pa.array(order)), file[order], row[order]
    group = np.zeros(len(file), np.int64)
    if _has_ids(table):
        group = table[columns.EPS_ID].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
        if rules.ids_per_file:
            group = _by_appearance(group * (int(file.max()) + 1) + file)
    terminated, truncated = _flags(table)
    t = table[columns.T].to_numpy() if columns.T in table.column_names else None
    if t is not None and rules.order != "time" and t.dtype.kind in "iu":
        t = t - rules.first_t
    return Steps(table, group, t, terminated | truncated, file, row)


def _taken(steps: Steps, rows: np.ndarray) -> Steps:
    in_place = len(rows) == len(steps.done) and (np.diff(rows) == 1).all()
    if in_place:
        return steps
    arrays = (None if array is None else array[rows] for array in steps[1:])
    return Steps(steps.table.take(pa.array(rows)), *arrays)  # type: ignore[arg-type]


def _ordered(steps: Steps, order: str, files: Sequence[str]) -> tuple[InOrder, int, int]:
    """(the rows in order without duplicates, duplicates, ambiguous links)."""
    count = len(steps.done)
    match order:
        case "t" | "time":
            rows, duplicates = _by_t(steps, files)
            return InOrder(rows, _breaks(steps, rows, by_number=order == "t")), duplicates, 0
        case "linked":
            keep = distinct_rows(_content(steps.table, count), steps.group, _folders(steps.file, files))
            kept = np.flatnonzero(keep)
            part = _taken(steps, kept)
            obs, new_obs = (read_column(part.table, name) for name in (columns.OBS, columns.NEW_OBS))
            chains = chain(obs, new_obs, part.done, part.group)
            by_group = np.argsort(part.group[chains.order], kind="stable")  # chains of one id together
            sequence = InOrder(kept[chains.order[by_group]], chains.starts[by_group])
            return sequence, count - len(kept), chains.ambiguous
    rows = np.argsort(steps.group, kind="stable")
    if order == "single_step":
        return InOrder(rows, np.ones(count, bool)), 0, 0
    starts = _breaks(steps, rows, by_number=False)
    if not _has_ids(steps.table):
        starts[1:] |= np.diff(steps.file) != 0
    return InOrder(rows, starts), 0, 0


def _by_t(steps: Steps, files: Sequence[str]) -> tuple[np.ndarray, int]:
    """(rows sorted by episode and t, each (episode, t) once, number of duplicates left out)."""
    assert steps.t is not None
    rows = np.lexsort((steps.t, steps.group))
    same = (steps.group[rows][1:] == steps.group[rows][:-1]) & (steps.t[rows][1:] == steps.t[rows][:-1])
    again = np.flatnonzero(same)
    if not len(again):
        return rows, 0
    one, other = steps.table.take(pa.array(rows[again])), steps.table.take(pa.array(rows[again + 1]))
    equal = equal_rows(_content(one, len(again)), _content(other, len(again)))
    if not equal.all():
        a, b = (int(rows[again[np.argmin(equal)] + k]) for k in (0, 1))
        raise EpisodeError(
            f"Two different rows claim to be step {steps.t[a]} of episode {_id_at(steps, a)}: {_where(steps, a, files)} and "
            f"{_where(steps, b, files)}. If each file numbers its episodes by itself, set episodes.ids_per_file."
        )
    keep = np.concatenate([[True], ~same])
    return rows[keep], len(again)


def _breaks(steps: Steps, rows: np.ndarray, *, by_number: bool) -> np.ndarray:
    """True where a row does not follow the one before it in `rows`."""
    starts = np.ones(len(rows), bool)
    before, now = rows[:-1], rows[1:]
    starts[1:] = (steps.group[before] != steps.group[now]) | steps.done[before]
    if by_number:
        assert steps.t is not None
        starts[1:] |= steps.t[now] != steps.t[before] + 1
    if columns.NEW_OBS in steps.table.column_names:
        obs, new_obs = (read_column(steps.table, name) for name in (columns.OBS, columns.NEW_OBS))
        if _shapes(obs) != _shapes(new_obs):
            raise SchemaError(f"Columns obs and new_obs have steps of different shapes: {_shapes(obs)} and {_shapes(new_obs)}.")
        starts[1:] |= (row_bytes(new_obs)[before] != row_bytes(obs)[now]).any(axis=1)
    return starts


def _with_new_obs(steps: Steps, starts: np.ndarray, *, drop_last: bool) -> tuple[Steps, np.ndarray, int]:
    """Adds `new_obs`, the obs of the next row; the last row of each run repeats its own, or is dropped."""
    last = np.concatenate([starts[1:], [True]])
    following = np.where(last, np.arange(len(starts)), np.arange(len(starts)) + 1)
    obs = read_column(steps.table, columns.OBS)
    new_obs = to_arrow(nested.map_leaves(lambda array: array[following], obs), columns.NEW_OBS)
    table = steps.table.append_column(pa.field(columns.NEW_OBS, new_obs.type, nullable=False), new_obs)
    steps = steps._replace(table=table)
    if not drop_last:
        return steps, starts, 0
    kept = np.flatnonzero(~last)
    done = steps.done.copy()
    return _taken(steps._replace(done=done), kept), starts[kept], int(last.sum())


def _numbers(steps: Steps, first: np.ndarray, rules: EpisodesConfig, order: str) -> np.ndarray:
    """(N,) int64: the number of each step within its episode."""
    if order == "t":
        assert steps.t is not None
        return steps.t.astype(np.int64)
    lengths = np.diff(np.concatenate([first, [len(steps.done)]]))
    return np.arange(len(steps.done)) - np.repeat(first, lengths)  # type: ignore[no-any-return]


def _ids(
    steps: Steps, first: np.ndarray, follows: np.ndarray, t: np.ndarray, files: Sequence[str], *, has_ids: bool, single: bool
) -> list[str]:
    """One id a part: the episode's own for the first, `<id>@<row or t>` for later ones; of its origin where there is none."""
    origins = [f"{files[steps.file[i]]}:{steps.row[i]}" for i in first]
    made = [hashlib.blake2b(origin.encode(), digest_size=16).hexdigest() for origin in origins]
    if not has_ids:
        return made
    own = steps.table[columns.EPS_ID].take(pa.array(first)).to_pylist()
    since = first - np.maximum.accumulate(np.where(follows, 0, first))
    numbers = (steps.t[first] if steps.t is not None and steps.t.dtype.kind in "iu" else since).tolist()
    return [f"{id}@{number}" if later else id for id, later, number in zip(own, follows.tolist(), numbers, strict=True)]


def _episode_table(table: pa.Table, ids: pa.Array, t: np.ndarray, terminated: np.ndarray, truncated: np.ndarray) -> pa.Table:
    """The step table that `table_to_episodes` reads."""
    own = {columns.EPS_ID: ids, columns.T: pa.array(t.astype(np.int64))}
    own |= {columns.TERMINATEDS: pa.array(terminated), columns.TRUNCATEDS: pa.array(truncated)}
    rest = table.drop_columns([name for name in table.column_names if name in (*own, SOURCE_FILE, SOURCE_ROW)])
    for name, array in own.items():
        rest = rest.append_column(name, array)
    return rest


def _flags(table: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """(terminated, truncated), False where there is no such column; both are the caller's to change."""
    both = (
        table[name].to_numpy().astype(bool) if name in table.column_names else np.zeros(table.num_rows, bool)
        for name in (columns.TERMINATEDS, columns.TRUNCATEDS)
    )
    terminated, truncated = both
    return terminated.copy(), truncated.copy()


def _content(table: pa.Table, count: int) -> np.ndarray:
    """(N, bytes) all that rows say, but for where they come from and the infos."""
    left_out = {SOURCE_FILE, SOURCE_ROW, columns.INFOS, columns.RESET_INFOS, columns.CUSTOM_DATA, columns.EPS_ID}
    trees = [read_column(table, name) for name in table.column_names if name not in left_out]
    return row_bytes(*trees)


def _folders(file: np.ndarray, files: Sequence[str]) -> np.ndarray:
    """(N,) the number of the folder that each row's file is in."""
    parents = np.unique([uri.rpartition("/")[0] for uri in files], return_inverse=True)[1]
    return parents[file]  # type: ignore[no-any-return]


def _by_appearance(codes: np.ndarray) -> np.ndarray:
    """The same groups numbered in the order in which they appear."""
    return pc.dictionary_encode(pa.array(codes)).indices.to_numpy().astype(np.int64)  # type: ignore[no-any-return]


def _shapes(tree: nested.Nested) -> Any:
    return nested.map_leaves(lambda array: array.shape[1:], tree)


def _has_ids(table: pa.Table) -> bool:
    return columns.EPS_ID in table.column_names


def _id_at(steps: Steps, row: int) -> str:
    return str(steps.table[columns.EPS_ID][row]) if _has_ids(steps.table) else "without id"


def _where(steps: Steps, row: int, files: Sequence[str]) -> str:
    return f"row {steps.row[row]:,} of {files[steps.file[row]]}"
