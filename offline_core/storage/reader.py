"""Reads datasets in this process: row groups, tables, episodes."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from offline_core.episodes import Episode, columns, decode, table_to_episodes
from offline_core.errors import EmptyDatasetError, SchemaError, within
from offline_core.storage.dataset import Dataset
from offline_core.storage.parquet_files import open_parquet, parquet_errors, read_footer

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A part of a data file that can be read alone; in files of ours it holds whole episodes."""

    uri: str
    num_rows: int
    _file: pq.ParquetFile
    _number: int
    _spaces: tuple[gym.Space[Any] | None, gym.Space[Any] | None]
    """Those that the manifest names."""

    @property
    def names(self) -> list[str]:
        """Its columns."""
        return list(self._file.schema_arrow.names)

    def read(self, names: Sequence[str] | None = None) -> pa.Table:
        """Its rows, with the columns `names` (as far as there are such) or all."""
        with parquet_errors(self.uri):
            return self._file.read_row_group(self._number, columns=None if names is None else list(names))

    def episodes(self, names: Sequence[str] | None = None, *, only: np.ndarray | None = None) -> list[Episode]:
        """Its episodes, not validated, with the dataset's spaces if they do not say theirs.

        Arguments:
            names: of a step table only these columns.
            only: (episodes,) booleans: leave out the others; in episode format they are not decoded.

        Raises:
            CorruptFileError, EpisodeError, SchemaError, UnsafeDataError: naming the file and the episode.
        """
        with within(self.uri):
            if columns.ITEM in self.names:
                items = self.read([columns.ITEM])[columns.ITEM]
                found = [decode(item) for item in (items if only is None else items.filter(pa.array(only))).to_pylist()]
            else:
                found = table_to_episodes(self.read(names))
                found = found if only is None else list(itertools.compress(found, only))
            return [self._with_spaces(episode) for episode in found]

    def _with_spaces(self, episode: Episode) -> Episode:
        observation_space, action_space = self._spaces
        if episode.observation_space is None and observation_space is not None:
            episode = replace(episode, observation_space=observation_space)
        if episode.action_space is None and action_space is not None:
            episode = replace(episode, action_space=action_space)
        return episode


def row_groups(dataset: Dataset) -> Iterator[RowGroup]:
    """The row groups of a dataset in the order of the manifest, none of them read yet.

    Raises:
        CorruptFileError: a file is truncated or damaged; the message names it.
    """
    spaces = dataset.observation_space, dataset.action_space
    for entry in dataset.manifest.files:
        location = dataset.location.child(entry.path)
        with open_parquet(location, read_footer(location, entry.footer_sha256)) as file:
            for number in range(file.num_row_groups):
                yield RowGroup(location.uri, file.metadata.row_group(number).num_rows, file, number, spaces)


def tables(dataset: Dataset, names: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """The rows of a dataset, one table a row group; see `row_groups`."""
    return (group.read(names) for group in row_groups(dataset))


def episodes(dataset: Dataset) -> Generator[Episode]:
    """The episodes of a dataset of ours, or of RLlib's episode files, each once, checked.

    Episodes (or pieces of them) that were there before, going by id and first step, are left out and counted in the log.

    Raises:
        CorruptFileError, EpisodeError, UnsafeDataError: naming the file and the episode.
    """
    if dataset.manifest.format == "table" and dataset.is_foreign:
        raise SchemaError(f"{dataset.location.uri} is a table without a manifest of ours; import it first ('offline import').")
    seen: set[tuple[str, int]] = set()
    duplicates = 0
    for group in row_groups(dataset):
        found = group.episodes()
        with within(group.uri):
            for episode in found:
                episode.validate()
        for episode in found:
            if (episode.eps_id, episode.t_started) in seen:
                duplicates += 1
                continue
            seen.add((episode.eps_id, episode.t_started))
            yield episode
    if duplicates:
        log.warning("%s: left out %d episodes that were there already, kept %d", dataset.location.uri, duplicates, len(seen))


def schema_of(dataset: Dataset) -> pa.Schema:
    """The Arrow schema of the first file."""
    for entry in dataset.manifest.files:
        return read_footer(dataset.location.child(entry.path), entry.footer_sha256).schema.to_arrow_schema()
    raise EmptyDatasetError(f"{dataset.location.uri} has no files.")


def spaces_of(dataset: Dataset) -> tuple[gym.Space[Any] | None, gym.Space[Any] | None]:
    """(observation space, action space): from the manifest, else from the first episode, else None."""
    if dataset.observation_space is not None and dataset.action_space is not None:
        return dataset.observation_space, dataset.action_space
    if dataset.manifest.format == "episodes":
        first = next((table for table in tables(dataset, [columns.ITEM]) if table.num_rows), None)
        if first is not None:
            episode = decode(first[columns.ITEM][0].as_py())
            return episode.observation_space, episode.action_space
    return dataset.observation_space, dataset.action_space
