"""Copy episodes between datasets without decoding them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from offline_core.data.datasets.commit import commit
from offline_core.data.datasets.dataset import Dataset
from offline_core.data.datasets.episode_index import indexed_row_groups
from offline_core.data.datasets.manifest import Operation, Statistics
from offline_core.data.datasets.writer import EpisodeWriter, WrittenFiles
from offline_core.data.episodes import columns
from offline_core.data.inputs.input_columns import common_inputs
from offline_core.runtime.prefetch import prefetched
from offline_core.runtime.progress import progress

GATHER_BYTES = 8 * 2**20
"""Rows of small row groups are gathered up to this size, so that they are written as large ones."""

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

    Row groups without a copied episode are never read; the next ones are read while the last are written. Memory: a few
    times `GATHER_BYTES` for each writer.

    Arguments:
        index: `episode_index` of the source, with `columns.EPISODE_SUMMARY` at least.
        names: of a step table only these columns; absent ones are skipped.
    """
    with progress(int((to != NOWHERE).sum()), what=what, unit="episode") as bar:
        for rows in prefetched(_gathered(_chosen_rows(source, index, to, names))):
            if source.manifest.format == "episodes":
                writers[rows.target].write_rows(rows.table)
            else:
                metadata = {name: index[name].to_numpy()[rows.episodes] for name in columns.EPISODE_SUMMARY}
                writers[rows.target].write_table(rows.table, metadata)
            bar.update(len(rows.episodes))


def commit_copy(
    output: str,
    written: WrittenFiles,
    sources: Sequence[Dataset],
    *,
    operation: Operation,
    statistics: Statistics | None = None,
    report: Mapping[str, Any] = MappingProxyType({}),
) -> Dataset:
    """Commits the written files as the next version of `output`, with the sources as parents.

    It has the spaces of the first source, and the environment if all sources have the same.
    """
    first = sources[0]
    environment = first.manifest.environment
    return commit(
        output,
        written.files,
        format=written.format,
        operation=operation,
        statistics=written.statistics if statistics is None else statistics,
        parents=[source.parent_entry for source in sources],
        environment=environment if all(source.manifest.environment == environment for source in sources) else None,
        observation_space=first.observation_space,
        action_space=first.action_space,
        input_columns=common_inputs([(str(source.location.uri), source.manifest.input_columns) for source in sources]),
        report=report,
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


def _gathered(parts: Iterator[_Rows]) -> Iterator[_Rows]:
    """The same rows in the same order, concatenated for each target while their columns are the same."""
    waiting: dict[int, list[_Rows]] = {}
    sizes: dict[int, int] = {}

    def together(target: int) -> _Rows:
        rows = waiting.pop(target)
        del sizes[target]
        return _Rows(pa.concat_tables([part.table for part in rows]), np.concatenate([part.episodes for part in rows]), target)

    for part in parts:
        before = waiting.get(part.target)
        if before and not before[0].table.schema.equals(part.table.schema):
            yield together(part.target)
        waiting.setdefault(part.target, []).append(part)
        sizes[part.target] = sizes.get(part.target, 0) + part.table.nbytes
        if sizes[part.target] >= GATHER_BYTES:
            yield together(part.target)
    for target in sorted(waiting):
        yield together(target)
