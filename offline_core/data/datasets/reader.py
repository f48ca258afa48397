"""Read whole datasets in this process: their episodes and their spaces."""

from __future__ import annotations

import logging
from collections.abc import Generator
from typing import Any

import gymnasium as gym

from offline_core.data.datasets.dataset import Dataset, not_imported
from offline_core.data.datasets.row_groups import row_groups, tables
from offline_core.data.episodes import Episode, columns, decode
from offline_core.errors import within

log = logging.getLogger(__name__)


def episodes(dataset: Dataset) -> Generator[Episode]:
    """The episodes of a dataset, or of RLlib's episode files, each once and validated.

    Episodes and pieces of them that occur again (same id and first step) are left out and counted in the log.

    Raises:
        CorruptFileError, EpisodeError, UnsafeDataError: naming the file and the episode.
        SchemaError: step tables that were not imported.
    """
    if dataset.manifest.format == "table" and dataset.is_foreign:
        raise not_imported(dataset.location.uri)
    seen: set[tuple[str, int]] = set()
    duplicates = 0
    for group in row_groups(dataset):
        found = group.episodes()
        with within(uri=group.uri):
            for episode in found:
                episode.validate()
        for episode in found:
            if (episode.eps_id, episode.t_started) in seen:
                duplicates += 1
                continue
            seen.add((episode.eps_id, episode.t_started))
            yield episode
    if duplicates:
        log.warning("%s: left out %d duplicate episodes, read %d", dataset.location.uri, duplicates, len(seen))


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
