"""Reads a dataset of either format as batches of steps, however broken."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from offline_core.data.datasets.dataset import Dataset, not_imported
from offline_core.data.datasets.row_groups import row_groups
from offline_core.data.episodes import Episode, EpisodeBatch, columns, decode, nested
from offline_core.data.episodes.arrow import read_column
from offline_core.data.episodes.batch import run_starts
from offline_core.data.episodes.metadata import content_of
from offline_core.data.episodes.steps import STEP_NAMES
from offline_core.data.episodes.table import check_shapes, one_a_step, spaces_of
from offline_core.data.quality.steps import StepBatch, types_of
from offline_core.data.store.parquet_files import read_footer
from offline_core.errors import SchemaError, within
from offline_core.runtime.units import count_text

_OTHERS = {columns.INFOS, columns.RESET_INFOS, columns.CUSTOM_DATA, columns.AGENT_ID, columns.MODULE_ID}
_IN_EVERY_STEP = (
    columns.OBS,
    columns.NEW_OBS,
    columns.ACTIONS,
    columns.REWARDS,
    columns.T,
    columns.TERMINATEDS,
    columns.TRUNCATEDS,
)


def step_batches(dataset: Dataset) -> Iterator[StepBatch]:
    """All steps of a dataset in stored order, a row group at a time; memory grows by some 300 bytes an episode.

    Episodes whose rows continue in the next row group are joined.

    Raises:
        SchemaError: step tables that lack canonical columns, or have nulls: convert them first.
        DataError: a file or a value cannot be read.
    """
    read = _from_episodes if dataset.manifest.format == "episodes" else _from_table
    return read(dataset, _History())


def _from_episodes(dataset: Dataset, history: _History) -> Iterator[StepBatch]:
    for group in row_groups(dataset):
        with within(uri=group.uri):
            episodes = [decode(item) for item in group.read([columns.ITEM])[columns.ITEM].to_pylist()]
        for _, alike in itertools.groupby(episodes, _kind):
            found = list(alike)
            batch = EpisodeBatch.of(found, [*_IN_EVERY_STEP, *found[0].extras])
            yield history.added_to(batch, dataset, [content_of(episode) for episode in found])


def _kind(episode: Episode) -> tuple[Any, ...]:
    """The types and spaces that episodes of one batch share."""
    trees = {columns.OBS: episode.observations, columns.ACTIONS: episode.actions, columns.REWARDS: episode.rewards}
    types = [types_of(nested.flatten(tree, name)) for name, tree in {**trees, **episode.extras}.items()]
    return types, episode.observation_space, episode.action_space


def _from_table(dataset: Dataset, history: _History) -> Iterator[StepBatch]:
    for table in _whole_episodes(_tables(dataset)):
        with within(uri=dataset.location.uri):
            batch = _of_table(table)
            contents = [content_of(episode) for episode in batch.episodes()]
        yield history.added_to(batch, dataset, contents)


def _tables(dataset: Dataset) -> Iterator[pa.Table]:
    """The row groups that have rows, with the columns of interest."""
    if dataset.is_foreign:
        raise not_imported(dataset.location.uri)
    footers = (read_footer(dataset.location.child(file.path), file.footer_sha256) for file in dataset.manifest.files)
    names = {name for footer in footers for name in footer.schema.to_arrow_schema().names} - _OTHERS
    for group in row_groups(dataset):
        if group.num_rows:
            table = group.read(sorted(names))
            if missing := sorted(set(STEP_NAMES) - set(table.column_names)):
                raise SchemaError(f"{group.uri} lacks the columns {missing} of a step table; convert it to episodes first.")
            yield table


def _whole_episodes(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The same rows, cut where episodes end."""
    held: pa.Table | None = None
    for table in tables:
        if held is not None and held.schema.equals(table.schema) and held[columns.EPS_ID][-1] == table[columns.EPS_ID][0]:
            last = run_starts(held[columns.EPS_ID].combine_chunks())[-1]
            if last:
                yield held.slice(0, last)
            table = pa.concat_tables([held.slice(last), table])
        elif held is not None:
            yield held
        held = table
    if held is not None:
        yield held


def _of_table(table: pa.Table) -> EpisodeBatch:
    """Its pieces: an episode whose t does not rise begins again."""
    ids = table[columns.EPS_ID].combine_chunks()
    if ids.null_count:
        nulls = count_text(ids.null_count, "null")
        raise SchemaError(f"Column {columns.EPS_ID!r} has {nulls}; every step has to belong to an episode.")
    t = one_a_step(table, columns.T).astype(np.int64)
    flags = {name: one_a_step(table, name).astype(bool) for name in (columns.TERMINATEDS, columns.TRUNCATEDS)}
    one_a_step(table, columns.REWARDS)
    others = [name for name in table.column_names if name not in (columns.EPS_ID, columns.T, *flags)]
    steps = {columns.T: t, **flags, **{name: read_column(table, name) for name in others}}
    check_shapes(steps)
    starts = np.union1d(run_starts(ids), np.flatnonzero(np.diff(t) <= 0) + 1)
    observation_space, action_space = spaces_of(table.schema)
    return EpisodeBatch(
        columns=steps,
        offsets=np.append(starts, len(t)),
        eps_ids=ids.take(pa.array(starts)).cast(pa.string()).to_pylist(),
        t_started=t[starts],
        observation_space=observation_space,
        action_space=action_space,
    )


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

    def added_to(self, batch: EpisodeBatch, dataset: Dataset, contents: list[str]) -> StepBatch:
        """The batch with what came before; its spaces default to the dataset's."""
        assert batch.eps_ids is not None and batch.t_started is not None
        lengths = batch.lengths
        done = np.bincount(batch.episode, batch[columns.TERMINATEDS] | batch[columns.TRUNCATEDS], len(lengths)) > 0
        stops = batch.t_started.copy()
        stops[lengths > 0] = batch[columns.T][batch.last_steps[lengths > 0]] + 1
        pieces = zip(batch.eps_ids, batch.t_started.tolist(), stops.tolist(), done.tolist(), strict=True)
        is_repeated, t_expected, was_done = map(np.array, zip(*(self.take(*piece) for piece in pieces), strict=True))
        return StepBatch(
            columns=batch.flat().columns,
            offsets=batch.offsets,
            eps_ids=list(batch.eps_ids),
            t_started=batch.t_started,
            observation_space=dataset.observation_space if batch.observation_space is None else batch.observation_space,
            action_space=dataset.action_space if batch.action_space is None else batch.action_space,
            dataset=dataset.location.uri,
            contents=contents,
            is_repeated=is_repeated,
            t_expected=t_expected,
            was_done=was_done,
        )
