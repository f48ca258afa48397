"""Episodes as they come, onto disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from offline_core.conversion.config import ImportConfig
from offline_core.conversion.report import Counts
from offline_core.conversion.stray_actions import ActionCounts
from offline_core.episodes import Episode
from offline_core.storage.location import Location
from offline_core.storage.manifest import FileEntry, Statistics
from offline_core.storage.writer import ROW_GROUP_BYTES, EpisodeWriter

EPISODES_AT_A_TIME = 1024


class Written(NamedTuple):
    """The episodes of one part, on disk."""

    files: list[FileEntry]
    statistics: Statistics
    counts: Counts
    episode: Episode | None
    """The first of them, without its steps."""
    actions: ActionCounts
    """Values of their actions; empty where the action space is declared."""


def write(root: Location, prefix: str, assembled: Iterable[tuple[list[Episode], Counts]], config: ImportConfig) -> Written:
    """Writes files `<prefix>-…` below `root`.

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
    return Written(writer.files, writer.statistics, counts, first, actions)


def _batches(assembled: Iterable[tuple[list[Episode], Counts]]) -> Iterator[tuple[list[Episode], Counts]]:
    """The same episodes, so many together that they fill a row group: a source may have a file for each."""
    batch: list[Episode] = []
    counts, size = Counts(), 0
    for episodes, more in assembled:
        counts += more
        for episode in episodes:
            batch.append(episode)
            size += episode.nbytes
            if len(batch) == EPISODES_AT_A_TIME or size >= ROW_GROUP_BYTES:
                yield batch, counts
                batch, counts, size = [], Counts(), 0
    yield batch, counts
