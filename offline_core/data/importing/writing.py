"""Write imported episodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from offline_core.data.datasets.manifest import FileEntry
from offline_core.data.datasets.statistics import Statistics
from offline_core.data.datasets.writer import ROW_GROUP_BYTES, EpisodeWriter
from offline_core.data.episodes import Episode
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.report import Counts
from offline_core.data.importing.stray_actions import ActionCounts
from offline_core.data.store.location import Location

EPISODES_AT_A_TIME = 1024
BYTES_AT_A_TIME = 16 * ROW_GROUP_BYTES
"""Large, so that few row groups are remainders."""
BYTES_OF_AN_INFO = 1024
"""A guess."""


class WrittenEpisodes(NamedTuple):
    """The episodes of one part, on disk."""

    files: list[FileEntry]
    statistics: Statistics
    counts: Counts
    episode: Episode | None
    """The first of them, without its steps."""
    actions: ActionCounts
    """Values of their actions; empty where the action space is declared."""


def write(
    root: Location, prefix: str, assembled: Iterable[tuple[list[Episode], Counts]], config: ImportConfig
) -> WrittenEpisodes:
    """Write files `<prefix>-…` below `root`, and count the episodes and steps in them.

    Raises:
        StorageError: a file cannot be written.
    """
    first, actions, counts = None, ActionCounts(), Counts()
    is_declared = config.environment is not None or config.action_space is not None
    with EpisodeWriter(root, prefix, format=config.format, config=config.files) as writer:
        for batch, more in _batches(assembled):
            counts += more
            if not batch:
                continue
            first = first or batch[0].slice(0, 0)
            writer.write(batch)
            if not is_declared and batch[0].action_space is None:
                actions.add(batch)
    counts.episodes, counts.steps = writer.statistics.episodes, writer.statistics.steps
    return WrittenEpisodes(writer.files, writer.statistics, counts, first, actions)


def _batches(assembled: Iterable[tuple[list[Episode], Counts]]) -> Iterator[tuple[list[Episode], Counts]]:
    """Group episodes in batches of one kind that fill row groups, also if each episode comes from a file of its own."""
    batch: list[Episode] = []
    counts, size, kind = Counts(), 0, None
    for episodes, more in assembled:
        counts += more
        for episode in episodes:
            before, kind = kind, _kind(episode)
            if batch and (len(batch) == EPISODES_AT_A_TIME or size >= BYTES_AT_A_TIME or kind != before):
                yield batch, counts
                batch, counts, size = [], Counts(), 0
            batch.append(episode)
            size += episode.nbytes + BYTES_OF_AN_INFO * len(episode.infos or ())
    yield batch, counts


def _kind(episode: Episode) -> tuple[Any, ...]:
    """Episodes of another kind do not share a table: their types, and whether they say their spaces."""
    return episode.observation_space is None, episode.action_space is None, episode.types
