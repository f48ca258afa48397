"""Copies episodes between datasets as they lie there: none is decoded, each goes where it is told to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import numpy as np
import polars as pl
import pyarrow as pa
from tqdm import tqdm

from offline_core.episodes import columns
from offline_core.storage.dataset import Dataset, commit
from offline_core.storage.episode_index import indexed_row_groups
from offline_core.storage.manifest import Operation, Statistics
from offline_core.storage.writer import EpisodeWriter

GATHER_BYTES = 16 * 2**20
"""Rows out of small row groups are written this many at a time, so that they come to lie in large ones."""

NOWHERE = -1


def copy_episodes(
    source: Dataset,
    index: pl.DataFrame,
    to: np.ndarray,
    writers: Sequence[EpisodeWriter],
    *,
    names: Sequence[str] | None = None,
    what: str = "copy",
) -> None:
    """Appends episode i of `source` to `writers[to[i]]`, in the order of the source; `NOWHERE` leaves it out.

    Row groups of which nothing is copied are never read; the next one is read while the last is written. Memory: some
    row groups and 16 MiB a writer.

    Arguments:
        index: `episode_index` of the source, with `columns.EPISODE_SUMMARY` at least.
        names: of a step table only these columns, those that a file lacks passed over.
    """
    gathered: list[list[_Rows]] = [[] for _ in writers]
    with tqdm(total=int((to != NOWHERE).sum()), desc=what, unit="episode", disable=None) as bar:
        for rows in _one_ahead(_chosen_rows(source, index, to, names)):
            waiting = gathered[rows.target]
            if waiting and not waiting[0].table.schema.equals(rows.table.schema):
                _write(writers[rows.target], waiting, index)
            waiting.append(rows)
            if sum(part.table.nbytes for part in waiting) >= GATHER_BYTES:
                _write(writers[rows.target], waiting, index)
            bar.update(len(rows.episodes))
        for writer, waiting in zip(writers, gathered, strict=True):
            _write(writer, waiting, index)


def commit_copy(
    output: str,
    writer: EpisodeWriter,
    sources: Sequence[Dataset],
    *,
    operation: Operation,
    statistics: Statistics | None = None,
) -> Dataset:
    """Makes what `writer` wrote the next version of `output`, with the sources as parents.

    It has the spaces of the first source, and the environment if it is the same for all.
    """
    first = sources[0]
    environment = first.manifest.environment
    return commit(
        output,
        writer.files,
        format=first.manifest.format,
        operation=operation,
        statistics=writer.statistics if statistics is None else statistics,
        parents=[source.parent_entry for source in sources],
        environment=environment if all(source.manifest.environment == environment for source in sources) else None,
        observation_space=first.observation_space,
        action_space=first.action_space,
    )


class _Rows(NamedTuple):
    table: pa.Table
    episodes: np.ndarray
    """Their numbers, rows of the index."""
    target: int


def _chosen_rows(source: Dataset, index: pl.DataFrame, to: np.ndarray, names: Sequence[str] | None) -> Iterator[_Rows]:
    lengths = index[columns.LENGTH].to_numpy() if source.manifest.format == "table" else np.ones(len(index), np.int64)
    for group, numbers in indexed_row_groups(source, index):
        targets = np.unique(to[numbers])
        targets = targets[targets != NOWHERE]
        if not len(targets):
            continue
        table = group.read(names)
        for target in targets.tolist():
            mask = to[numbers] == target
            part = table if mask.all() else table.filter(pa.array(np.repeat(mask, lengths[numbers])))
            yield _Rows(part, numbers[mask], target)


def _write(writer: EpisodeWriter, waiting: list[_Rows], index: pl.DataFrame) -> None:
    if not waiting:
        return
    table = pa.concat_tables([rows.table for rows in waiting])
    if writer.format == "episodes":
        writer.write_rows(table)
    else:
        numbers = np.concatenate([rows.episodes for rows in waiting])
        writer.write_table(table, {name: index[name].to_numpy()[numbers] for name in columns.EPISODE_SUMMARY})
    waiting.clear()


Item = TypeVar("Item")


def _one_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """The same items; a thread makes the next one while the last is used."""
    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(next, items, None)
        while (item := following.result()) is not None:
            following = thread.submit(next, items, None)
            yield item
