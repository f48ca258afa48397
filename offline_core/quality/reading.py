"""A dataset of either format as batches of steps, however broken."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from offline_core.episodes import Episode, columns, decode, nested
from offline_core.episodes.arrow import read_column
from offline_core.episodes.metadata import content_of
from offline_core.episodes.nested import Nested
from offline_core.episodes.table import spaces_of
from offline_core.errors import SchemaError, within
from offline_core.quality.steps import StepBatch, types_of
from offline_core.storage.dataset import Dataset
from offline_core.storage.parquet_files import read_footer
from offline_core.storage.reader import row_groups

_BESIDE = {columns.INFOS, columns.RESET_INFOS, columns.CUSTOM_DATA, columns.AGENT_ID, columns.MODULE_ID}
_FRAME = {columns.EPS_ID, columns.T, columns.TERMINATEDS, columns.TRUNCATEDS}
_REQUIRED = _FRAME | {columns.OBS, columns.NEW_OBS, columns.ACTIONS, columns.REWARDS}


def step_batches(dataset: Dataset) -> Iterator[StepBatch]:
    """All steps of a dataset, in the order they lie in, a row group at a time; memory grows by some 300 bytes an episode.

    Episodes whose rows go on in the next row group are put together.

    Raises:
        SchemaError: step tables that are not in our columns, or have nulls: convert them first.
        DataError: a file or a value cannot be read.
    """
    read = _from_episodes if dataset.manifest.format == "episodes" else _from_table
    return read(dataset, _History())


def _from_episodes(dataset: Dataset, history: _History) -> Iterator[StepBatch]:
    for group in row_groups(dataset):
        with within(group.uri):
            episodes = [decode(item) for item in group.read([columns.ITEM])[columns.ITEM].to_pylist()]
        for _, alike in itertools.groupby(episodes, _kind):
            yield _of_episodes(dataset, history, list(alike))


def _of_episodes(dataset: Dataset, history: _History, episodes: Sequence[Episode]) -> StepBatch:
    """Episodes that are alike as one batch."""
    offsets = np.concatenate([[0], np.cumsum([len(e) for e in episodes])])
    t_started = np.array([e.t_started for e in episodes])
    flags = np.zeros((2, offsets[-1]), bool)
    for episode, stop in zip(episodes, offsets[1:], strict=True):
        if len(episode):
            flags[:, stop - 1] = episode.terminated, episode.truncated
    trees = {
        columns.OBS: [e.get_observations(slice(0, len(e))) for e in episodes],
        columns.NEW_OBS: [e.get_observations(slice(1, None)) for e in episodes],
        columns.ACTIONS: [e.get_actions() for e in episodes],
        columns.REWARDS: [e.get_rewards() for e in episodes],
        **{name: [e.get_extra(name) for e in episodes] for name in episodes[0].extras},
    }
    return _batch(
        dataset,
        history,
        eps_ids=[e.eps_id for e in episodes],
        offsets=offsets,
        trees={name: nested.concatenate(values) for name, values in trees.items()},
        t=np.concatenate([np.arange(e.t_started, e.t) for e in episodes]),
        t_started=t_started,
        terminated=flags[0],
        truncated=flags[1],
        contents=[content_of(e) for e in episodes],
        spaces=(episodes[0].observation_space, episodes[0].action_space),
    )


def _kind(episode: Episode) -> tuple[Any, ...]:
    """What episodes of one batch have in common."""
    trees = {columns.OBS: episode.observations, columns.ACTIONS: episode.actions, columns.REWARDS: episode.rewards}
    types = [types_of(nested.flatten(tree, name)) for name, tree in {**trees, **episode.extras}.items()]
    return types, episode.observation_space, episode.action_space


def _from_table(dataset: Dataset, history: _History) -> Iterator[StepBatch]:
    for table in _whole_episodes(_tables(dataset)):
        with within(dataset.location.uri):
            batch = _of_table(dataset, history, table)
        yield batch


def _tables(dataset: Dataset) -> Iterator[pa.Table]:
    """The row groups that have rows, with the columns of interest."""
    if dataset.is_foreign:
        raise SchemaError(f"{dataset.location.uri} is a table without a manifest of ours; import it first ('offline import').")
    footers = (read_footer(dataset.location.child(file.path), file.footer_sha256) for file in dataset.manifest.files)
    names = {name for footer in footers for name in footer.schema.to_arrow_schema().names} - _BESIDE
    for group in row_groups(dataset):
        if group.num_rows:
            table = group.read(sorted(names))
            if missing := sorted(_REQUIRED - set(table.column_names)):
                raise SchemaError(f"{group.uri} lacks the columns {missing} of a step table; convert it to episodes first.")
            yield table


def _whole_episodes(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The same rows, cut where episodes end."""
    held: pa.Table | None = None
    for table in tables:
        if held is not None and held.schema.equals(table.schema) and held[columns.EPS_ID][-1] == table[columns.EPS_ID][0]:
            last = _changes(held[columns.EPS_ID].combine_chunks())[-1]
            if last:
                yield held.slice(0, last)
            table = pa.concat_tables([held.slice(last), table])
        elif held is not None:
            yield held
        held = table
    if held is not None:
        yield held


def _changes(ids: pa.Array) -> np.ndarray:
    """The rows that begin a run of equal ids, the first one included."""
    return np.concatenate([[0], np.flatnonzero(pc.not_equal(ids.slice(1), ids.slice(0, len(ids) - 1))) + 1])


def _of_table(dataset: Dataset, history: _History, table: pa.Table) -> StepBatch:
    ids = table[columns.EPS_ID].combine_chunks()
    if ids.null_count:
        raise SchemaError(f"Column {columns.EPS_ID!r} has {ids.null_count} nulls; every step has to belong to an episode.")
    trees = {name: read_column(table, name) for name in table.column_names if name not in _FRAME}
    one_a_step = {name: read_column(table, name) for name in (columns.T, columns.TERMINATEDS, columns.TRUNCATEDS)}
    for name, values in (one_a_step | {columns.REWARDS: trees[columns.REWARDS]}).items():
        kinds = "iu" if name == columns.T else "biuf"
        if not isinstance(values, np.ndarray) or values.ndim != 1 or values.dtype.kind not in kinds:
            raise SchemaError(f"Column {name!r} has type {table[name].type}; it has to hold one number a step.")
    t = one_a_step[columns.T].astype(np.int64)
    terminated, truncated = (one_a_step[name].astype(bool) for name in (columns.TERMINATEDS, columns.TRUNCATEDS))
    starts = np.union1d(_changes(ids), np.flatnonzero(np.diff(t) <= 0) + 1)
    offsets = np.append(starts, len(t))
    return _batch(
        dataset,
        history,
        eps_ids=ids.take(pa.array(starts)).cast(pa.string()).to_pylist(),
        offsets=offsets,
        trees=trees,
        t=t,
        t_started=t[starts],
        terminated=terminated,
        truncated=truncated,
        contents=_contents(trees, terminated, truncated, offsets),
        spaces=spaces_of(table.schema),
    )


def _contents(trees: dict[str, Nested], terminated: np.ndarray, truncated: np.ndarray, offsets: np.ndarray) -> list[str]:
    """`content_of` every piece."""
    obs, new_obs = trees[columns.OBS], trees[columns.NEW_OBS]
    shapes, new_shapes = (nested.map_leaves(lambda leaf: leaf.shape, tree) for tree in (obs, new_obs))
    if shapes != new_shapes:
        raise SchemaError(f"Columns obs and new_obs have different shapes: {shapes} and {new_shapes}.")

    def piece(start: int, stop: int) -> Episode:
        def join(now: np.ndarray, after: np.ndarray) -> np.ndarray:
            return np.concatenate([now[start:stop], after[stop - 1 : stop]])

        return Episode(
            eps_id="",
            observations=nested.map_leaves(join, obs, new_obs),
            actions=nested.map_leaves(lambda leaf: leaf[start:stop], trees[columns.ACTIONS]),
            rewards=trees[columns.REWARDS][start:stop],
            terminated=bool(terminated[stop - 1]),
            truncated=bool(truncated[stop - 1]),
        )

    return [content_of(piece(start, stop)) for start, stop in itertools.pairwise(offsets.tolist())]


@dataclass
class _History:
    """What is known of every episode so far."""

    latest: dict[str, tuple[int, bool]] = field(default_factory=dict)
    """The step after the last one, and whether there can be one."""
    starts: set[tuple[str, int]] = field(default_factory=set)

    def take(self, eps_id: str, start: int, stop: int, is_done: bool) -> tuple[bool, int, bool]:
        """(is_repeated, t_expected, was_done) of a piece, which is history from then on."""
        if (eps_id, start) in self.starts:
            return True, -1, False
        expected, was_done = self.latest.get(eps_id, (-1, False))
        self.starts.add((eps_id, start))
        self.latest[eps_id] = (stop, is_done or was_done)
        return False, expected, was_done


def _batch(
    dataset: Dataset,
    history: _History,
    *,
    eps_ids: list[str],
    offsets: np.ndarray,
    trees: dict[str, Nested],
    t: np.ndarray,
    t_started: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    contents: list[str],
    spaces: tuple[gym.Space[Any] | None, gym.Space[Any] | None],
) -> StepBatch:
    """The batch, with what came before; `spaces` default to those of the dataset."""
    lengths = np.diff(offsets)
    done = np.bincount(np.repeat(np.arange(len(lengths)), lengths), terminated | truncated, len(lengths)) > 0
    stops = t_started.copy()
    stops[lengths > 0] = t[offsets[1:][lengths > 0] - 1] + 1
    pieces = zip(eps_ids, t_started.tolist(), stops.tolist(), done.tolist(), strict=True)
    is_repeated, t_expected, was_done = zip(*(history.take(*piece) for piece in pieces), strict=True)
    return StepBatch(
        dataset=dataset.location.uri,
        eps_ids=eps_ids,
        offsets=offsets,
        columns={path: leaf for name, tree in trees.items() for path, leaf in nested.flatten(tree, name).items()},
        t=t,
        terminated=terminated,
        truncated=truncated,
        contents=contents,
        t_started=t_started,
        is_repeated=np.array(is_repeated),
        t_expected=np.array(t_expected),
        was_done=np.array(was_done),
        observation_space=dataset.observation_space if spaces[0] is None else spaces[0],
        action_space=dataset.action_space if spaces[1] is None else spaces[1],
    )
