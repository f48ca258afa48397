"""One row an episode: what a dataset holds, without opening any episode if that can be helped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from offline_core.episodes import columns
from offline_core.episodes.codec import unpack
from offline_core.episodes.episode import return_of
from offline_core.episodes.metadata import SCHEMA, complete, content_of, policy_of, success_of
from offline_core.errors import SchemaError
from offline_core.storage.dataset import Dataset
from offline_core.storage.reader import RowGroup, row_groups

_SUMMED_UP = [columns.EPS_ID, columns.T, columns.REWARDS, columns.TERMINATEDS, columns.TRUNCATEDS]
STEP_CORE = [*_SUMMED_UP, columns.OBS, columns.NEW_OBS, columns.ACTIONS]
"""Without these columns there are no episodes."""


def episode_index(dataset: Dataset, names: Sequence[str] = columns.EPISODE_SUMMARY) -> pl.DataFrame:
    """The columns `names` of `columns.EPISODE_METADATA`, one row an episode, in the order of the data.

    Reads only those columns of episode files, and five columns of step tables. There, success and policy_id take one
    column more each, and content takes all observations and actions. Files from before these three had none: their
    success and policy_id are null, their content is computed.

    Raises:
        SchemaError: a foreign folder, which has no such columns.
    """
    if dataset.is_foreign:
        raise SchemaError(f"{dataset.location.uri} has no manifest of ours; import it first, as 'offline prune' does.")
    one = _from_rows if dataset.manifest.format == "episodes" else _from_steps
    return pl.concat([pl.DataFrame(one(group, names).select(list(names))) for group in row_groups(dataset)])


def indexed_row_groups(dataset: Dataset, index: pl.DataFrame) -> Iterator[tuple[RowGroup, np.ndarray]]:
    """The row groups of a dataset of ours, each with the numbers (rows of its `episode_index`) of the episodes in it."""
    lengths = index[columns.LENGTH].to_numpy() if dataset.manifest.format == "table" else np.ones(len(index), np.int64)
    ends = np.cumsum(lengths)
    rows = episode = 0
    for group in row_groups(dataset):
        rows += group.num_rows
        first, episode = episode, int(np.searchsorted(ends, rows, side="right"))
        yield group, np.arange(first, episode)


def _from_rows(group: RowGroup, names: Sequence[str]) -> pa.Table:
    index = complete(group.read([*names, columns.EPS_ID]))
    if columns.CONTENT in names and index[columns.CONTENT].null_count:
        return _with(index, columns.CONTENT, [content_of(episode) for episode in group.episodes()])
    return index


def _from_steps(group: RowGroup, names: Sequence[str]) -> pa.Table:
    """Our row groups end where episodes end, so each can be summed up alone."""
    steps = pl.DataFrame(group.read(_SUMMED_UP))
    episodes = steps.group_by(columns.EPS_ID, maintain_order=True).agg(
        pl.col(columns.T).first().alias(columns.T_STARTED),
        pl.len().cast(pl.Int64).alias(columns.LENGTH),
        pl.col(columns.TERMINATEDS).any().alias(columns.TERMINATED),
        pl.col(columns.TRUNCATEDS).any().alias(columns.TRUNCATED),
    )
    ends = episodes[columns.LENGTH].to_numpy().cumsum()
    starts = ends - episodes[columns.LENGTH].to_numpy()
    rewards = steps[columns.REWARDS].cast(pl.Float64).to_numpy()
    returns = [return_of(rewards[start:end]) for start, end in zip(starts, ends, strict=True)]
    index = complete(episodes.with_columns(pl.Series(columns.RETURN, returns, pl.Float64)).to_arrow())
    if columns.SUCCESS in names and columns.INFOS in group.names:
        last = group.read([columns.INFOS])[columns.INFOS].take(pa.array(ends - 1)).to_pylist()
        index = _with(index, columns.SUCCESS, [success_of(unpack(info)) for info in last])
    if columns.POLICY_ID in names and columns.CUSTOM_DATA in group.names:
        first = group.read([columns.CUSTOM_DATA])[columns.CUSTOM_DATA].take(pa.array(starts)).to_pylist()
        index = _with(index, columns.POLICY_ID, [None if data is None else policy_of(unpack(data)) for data in first])
    if columns.CONTENT in names:
        index = _with(index, columns.CONTENT, [content_of(episode) for episode in group.episodes(STEP_CORE)])
    return index


def _with(index: pa.Table, name: str, values: Sequence[object]) -> pa.Table:
    return index.set_column(index.schema.get_field_index(name), SCHEMA.field(name), pa.array(values, SCHEMA.field(name).type))
