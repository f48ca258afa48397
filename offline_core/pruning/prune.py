"""Keeps some episodes of a dataset: chosen by their metadata, copied without being decoded, committed as a new version."""

from __future__ import annotations

import logging
import math

import numpy as np
import polars as pl
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field
from tqdm import tqdm

from offline_core.conversion.importing import open_or_import
from offline_core.episodes import columns
from offline_core.errors import ConfigError, EmptyDatasetError, SchemaError
from offline_core.pruning.config import PruningConfig
from offline_core.storage.dataset import Dataset, DatasetRef, commit, prepare_dataset
from offline_core.storage.episode_index import episode_index
from offline_core.storage.manifest import Operation, Statistics
from offline_core.storage.reader import row_groups, schema_of
from offline_core.storage.writer import EpisodeWriter, statistics_of

log = logging.getLogger(__name__)


class PruningResult(BaseModel):
    """What was kept."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: DatasetRef
    source: DatasetRef
    before: Statistics
    after: Statistics
    dropped_episodes: int = Field(description="before.episodes = after.episodes + dropped_episodes, always.")


def prune_dataset(config: PruningConfig, *, dataset: str, output: str, version: int | None = None) -> PruningResult:
    """Copies the episodes that meet the conditions into the next version of `output`.

    Row groups without any of them are never read; the bytes of an episode are copied as they are.

    Arguments:
        dataset: URI of a dataset, or of a folder of RLlib's episode files.
        output: URI of a dataset, created if need be; it may be the same.
        version: of the source, the latest if None.

    Raises:
        ConfigError: the condition cannot be understood, or names an unknown column.
        EmptyDatasetError: nothing meets it; nothing is committed.
    """
    source = open_or_import(dataset, version, output=output)
    index = episode_index(source)
    keep = chosen(index, config)
    if not keep.any():
        best = float(index[columns.RETURN].to_numpy().max())
        raise EmptyDatasetError(
            f"None of the {len(index):,} episodes of {source.ref} meets the conditions {_conditions(config)}; "
            f"the highest return is {best}. No version was committed."
        )
    names = _projection(source, config)
    with EpisodeWriter(prepare_dataset(output), "part", format=source.manifest.format, config=config.files) as writer:
        _copy(source, index, keep, names, writer)
    after = statistics_of(writer.metadata)
    pruned = commit(
        output,
        writer.files,
        format=source.manifest.format,
        operation=Operation(name="prune_dataset", config=config.model_dump(mode="json")),
        statistics=after,
        parents=[source.parent_entry],
        environment=source.manifest.environment,
        observation_space=source.observation_space,
        action_space=source.action_space,
    )
    before = source.manifest.statistics
    result = PruningResult(
        dataset=pruned.ref, source=source.ref, before=before, after=after, dropped_episodes=before.episodes - after.episodes
    )
    log.info("Kept %s of %s episodes: %s", f"{after.episodes:,}", f"{before.episodes:,}", pruned.ref)
    return result


def chosen(index: pl.DataFrame, config: PruningConfig) -> np.ndarray:
    """Which rows of an episode index to keep, as booleans.

    Raises:
        ConfigError: the condition cannot be understood.
    """
    keep = np.ones(len(index), bool)
    if config.where is not None:
        try:
            condition = index.with_columns(pl.col(columns.RETURN).fill_nan(None)).with_columns(
                pl.sql_expr(config.where).alias("keep")
            )["keep"]
        except pl.exceptions.PolarsError as error:
            raise ConfigError(
                f"The condition {config.where!r} cannot be used: {error}. Columns are {', '.join(index.columns)}."
            ) from error
        if condition.dtype != pl.Boolean:
            raise ConfigError(f"The condition {config.where!r} gives {condition.dtype} and not true or false.")
        keep &= condition.fill_null(False).to_numpy()
    if config.keep_top_fraction is not None:
        candidates = np.flatnonzero(keep)
        count = math.ceil(round(config.keep_top_fraction * len(candidates), 9))  # 0.07 * 100 is 7.000000000000001
        best = np.argsort(-index[columns.RETURN].to_numpy()[candidates], kind="stable")[:count]  # among equals the earlier one
        keep = np.zeros(len(index), bool)
        keep[candidates[best]] = True
    return keep


def _projection(source: Dataset, config: PruningConfig) -> list[str] | None:
    if config.columns is None:
        return None
    if source.manifest.format == "episodes":
        raise ConfigError("Columns can be chosen in table format only; in episode format an episode is one value.")
    present = schema_of(source).names
    if missing := sorted(set(config.columns) - set(present)):
        raise SchemaError(f"{source.location.uri} has no column {', '.join(missing)}; it has {', '.join(present)}.")
    return [*columns.STEP_COLUMNS, *config.columns]  # those that a file lacks are passed over


def _copy(source: Dataset, index: pl.DataFrame, keep: np.ndarray, names: list[str] | None, writer: EpisodeWriter) -> None:
    """Reads the row groups that hold a kept episode and writes its rows."""
    is_table = source.manifest.format == "table"
    lengths = index[columns.LENGTH].to_numpy()
    row_keep = np.repeat(keep, lengths) if is_table else keep
    row_episode = np.repeat(np.arange(len(index)), lengths) if is_table else np.arange(len(index))
    metadata = {name: index[name].to_numpy() for name in columns.EPISODE_METADATA}
    row = 0
    with tqdm(total=int(row_keep.sum()), desc="prune", unit="step" if is_table else "episode", disable=None) as bar:
        for group in row_groups(source):
            rows = slice(row, row + group.num_rows)
            row = rows.stop
            mask = row_keep[rows]
            if not mask.any():
                continue
            table = group.read(names).filter(pa.array(mask))
            if is_table:
                kept = np.unique(row_episode[rows][mask])
                writer.write_table(table, {name: values[kept] for name, values in metadata.items()})
            else:
                writer.write_rows(table)
            bar.update(table.num_rows)


def _conditions(config: PruningConfig) -> str:
    return f"(where {config.where or 'nothing'}, top fraction {config.keep_top_fraction or 'none'})"
