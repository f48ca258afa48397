"""One row an episode: what a dataset holds, without opening any episode."""

from __future__ import annotations

import polars as pl

from offline_core.episodes import columns
from offline_core.errors import SchemaError
from offline_core.storage.dataset import Dataset
from offline_core.storage.reader import tables

_FROM_STEPS = [columns.EPS_ID, columns.T, columns.REWARDS, columns.TERMINATEDS, columns.TRUNCATEDS]


def episode_index(dataset: Dataset) -> pl.DataFrame:
    """The columns of `columns.EPISODE_METADATA`, one row an episode, in the order of the data.

    Reads only those columns of episode files, and five columns of step tables.

    Raises:
        SchemaError: a foreign folder, which has no such columns.
    """
    if dataset.is_foreign:
        raise SchemaError(f"{dataset.location.uri} has no manifest of ours; import it first, as 'offline prune' does.")
    if dataset.manifest.format == "episodes":
        parts = [pl.DataFrame(table) for table in tables(dataset, columns.EPISODE_METADATA)]
    else:
        parts = [_from_steps(pl.DataFrame(table)) for table in tables(dataset, _FROM_STEPS)]
    return pl.concat(parts)


def _from_steps(steps: pl.DataFrame) -> pl.DataFrame:
    """Our row groups end where episodes end, so each can be summed up alone."""
    return steps.group_by(columns.EPS_ID, maintain_order=True).agg(
        pl.col(columns.T).first().alias(columns.T_STARTED),
        pl.len().cast(pl.Int64).alias(columns.LENGTH),
        pl.col(columns.REWARDS).cast(pl.Float64).sum().alias(columns.RETURN),
        pl.col(columns.TERMINATEDS).any().alias(columns.TERMINATED),
        pl.col(columns.TRUNCATEDS).any().alias(columns.TRUNCATED),
    )
