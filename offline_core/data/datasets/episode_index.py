"""The episode index: one row an episode, read from metadata columns where a dataset has them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import polars as pl
import pyarrow as pa

from offline_core.data.datasets.dataset import Dataset, not_imported
from offline_core.data.datasets.row_groups import READERS, ROW_GROUP, RowGroup, batches, read_together, row_groups
from offline_core.data.episodes import columns
from offline_core.data.episodes.batch import run_starts
from offline_core.data.episodes.codec import unpack
from offline_core.data.episodes.episode import return_of
from offline_core.data.episodes.metadata import SCHEMA, complete, content_of, policy_of, success_of

PART_SUFFIX = re.compile(r"(@\d+(-[0-9a-f]{8})?)+$")
"""Imports and prunings add this to the id of an episode for its later parts: the step they begin at, a hash."""

OTHER_IDS = (
    "If they are different episodes, import one of the two again with episodes: {ids_per: file}, which adds a hash of the file "
    "to its ids."
)
"""What mends that two datasets use an id for different episodes."""

_STEP_SUMMARY = [columns.EPS_ID, columns.T, columns.REWARDS, columns.TERMINATEDS, columns.TRUNCATEDS]
STEP_CORE = [*_STEP_SUMMARY, columns.OBS, columns.NEW_OBS, columns.ACTIONS]
"""The columns that make up an episode."""


def episode_index(dataset: Dataset, names: Sequence[str] = columns.EPISODE_SUMMARY) -> pl.DataFrame:
    """The columns `names` of `columns.EPISODE_METADATA`, one row an episode, in the order of the data.

    Reads only these columns of episode files, and five columns of step tables. In step tables, success and policy_id read one
    more column each, and content reads all observations and actions. Older episode files lack these three: success and
    policy_id are null, content is computed.

    Raises:
        SchemaError: the dataset is a foreign folder, which has no such columns.
    """
    if dataset.is_foreign:
        raise not_imported(dataset.location.uri)
    one = _from_rows if dataset.manifest.format == "episodes" else _from_steps
    return pl.concat([pl.DataFrame(one(groups, names).select(list(names))) for groups in batches(row_groups(dataset))])


def episode_constants(dataset: Dataset, name: str) -> list[object]:
    """For each episode the value that a column of its steps has in all of them, None if it has several or none."""
    return [value for group in row_groups(dataset) for value in _constants(group, name)]


def _constants(group: RowGroup, name: str) -> list[object]:
    if columns.ITEM not in group.names:
        if name not in group.names:
            return [None] * pl.DataFrame(group.read([columns.EPS_ID]))[columns.EPS_ID].n_unique()
        steps = pl.DataFrame(group.read([columns.EPS_ID, name]))
        one = pl.when(pl.col(name).n_unique() == 1).then(pl.col(name).first()).alias("one")
        return steps.group_by(columns.EPS_ID, maintain_order=True).agg(one)["one"].to_list()
    values = (episode.extras.get(name) for episode in group.episodes())
    return [_one(each) if isinstance(each, np.ndarray) else None for each in values]


def _one(values: np.ndarray) -> object:
    """The value of all steps, with NaN as equal to itself as in step tables; None if there are several or none."""
    if not len(values):
        return None
    first = values[0]
    same = (values == first) | ((values != values) & (first != first))
    return (first.tolist() if isinstance(first, (np.generic, np.ndarray)) else first) if same.all() else None


def indexed_row_groups(dataset: Dataset, index: pl.DataFrame) -> Iterator[tuple[RowGroup, np.ndarray]]:
    """The row groups of a dataset, each with the numbers of its episodes (rows of `episode_index`)."""
    lengths = index[columns.LENGTH].to_numpy() if dataset.manifest.format == "table" else np.ones(len(index), np.int64)
    ends = np.cumsum(lengths)
    rows = episode = 0
    for group in row_groups(dataset):
        rows += group.num_rows
        first, episode = episode, int(np.searchsorted(ends, rows, side="right"))
        yield group, np.arange(first, episode)


def places_of_ids(dataset: Dataset) -> pl.DataFrame:
    """The id and the row group (`ROW_GROUP`) of each episode, in the order of the data; reads only the column of ids."""

    def ids_in(group: RowGroup) -> pl.DataFrame:
        ids = group.read([columns.EPS_ID])[columns.EPS_ID].combine_chunks()
        if dataset.manifest.format == "table":
            ids = ids.take(pa.array(run_starts(ids)))
        numbers = np.full(len(ids), group.number_in_dataset, np.int64)
        return pl.DataFrame({columns.EPS_ID: pl.Series(ids, dtype=pl.String), ROW_GROUP: numbers})

    schema = {columns.EPS_ID: pl.String, ROW_GROUP: pl.Int64}
    with ThreadPoolExecutor(READERS) as pool:
        return pl.concat([pl.DataFrame(schema=schema), *pool.map(ids_in, row_groups(dataset))])


def _from_rows(groups: Sequence[RowGroup], names: Sequence[str]) -> pa.Table:
    index = complete(read_together(groups, [*names, columns.EPS_ID]))
    if columns.CONTENT in names and index[columns.CONTENT].null_count:
        return _with(index, columns.CONTENT, _contents(groups))
    return index


def _from_steps(groups: Sequence[RowGroup], names: Sequence[str]) -> pa.Table:
    """Row groups end where episodes end, so an id in two of them is of two episodes."""
    steps = pl.DataFrame(read_together(groups, _STEP_SUMMARY, numbered=True))
    episodes = steps.group_by(ROW_GROUP, columns.EPS_ID, maintain_order=True).agg(
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
    if columns.SUCCESS in names and columns.INFOS in groups[0].names:
        last = read_together(groups, [columns.INFOS])[columns.INFOS].take(pa.array(ends - 1)).to_pylist()
        index = _with(index, columns.SUCCESS, [success_of(unpack(info)) for info in last])
    if columns.POLICY_ID in names and columns.CUSTOM_DATA in groups[0].names:
        first = read_together(groups, [columns.CUSTOM_DATA])[columns.CUSTOM_DATA].take(pa.array(starts)).to_pylist()
        index = _with(index, columns.POLICY_ID, [None if data is None else policy_of(unpack(data)) for data in first])
    if columns.CONTENT in names:
        index = _with(index, columns.CONTENT, _contents(groups, STEP_CORE))
    return index


def _contents(groups: Sequence[RowGroup], names: Sequence[str] | None = None) -> list[str]:
    return [content_of(episode) for group in groups for episode in group.episodes(names)]


def _with(index: pa.Table, name: str, values: Sequence[object]) -> pa.Table:
    return index.set_column(index.schema.get_field_index(name), SCHEMA.field(name), pa.array(values, SCHEMA.field(name).type))


def trajectory_of(eps_id: str) -> str:
    """The id that all parts of a trajectory share: without the step that a later part begins at."""
    return PART_SUFFIX.sub("", eps_id)


def first_parts(index: pl.DataFrame) -> np.ndarray:
    """(episodes,) for each episode the number of its trajectory's first part: its own number unless it is a later part.

    Imports and prunings leave parts of an episode where steps are missing. They share an id, up to a part that terminated.

    Arguments:
        index: `episode_index` of a dataset, with eps_id, t_started and terminated.
    """
    ids = index[columns.EPS_ID].to_list()
    bases = list(map(trajectory_of, ids))
    starts = [[int(t) for t in re.findall(r"@(\d+)", eps_id[len(base) :])] for eps_id, base in zip(ids, bases, strict=True)]
    keys = list(zip(bases, starts, index[columns.T_STARTED].to_list(), strict=True))
    order = np.array(sorted(range(len(keys)), key=keys.__getitem__), int)
    terminated = index[columns.TERMINATED].to_list()
    continues = [
        bases[before] == bases[now] and (not terminated[before] or keys[before] == keys[now])
        for before, now in itertools.pairwise(order.tolist())
    ]
    begins = np.array([True, *(not each for each in continues)])
    first = np.zeros(len(order), int)
    first[order] = order[begins][np.cumsum(begins) - 1]
    return first
