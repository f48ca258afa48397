"""Episodes as they come, onto disk."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from offline_core.conversion.config import ImportConfig
from offline_core.conversion.report import Counts
from offline_core.conversion.stray_actions import ActionCounts
from offline_core.episodes import Episode
from offline_core.storage.location import Location
from offline_core.storage.manifest import FileEntry, Statistics
from offline_core.storage.writer import EpisodeWriter

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
    counts, first, actions = Counts(), None, ActionCounts()
    is_declared = config.environment is not None or config.action_space is not None
    with EpisodeWriter(root, prefix, format=config.format, config=config.files) as writer:
        for episodes, more in assembled:
            counts += more
            first = first or next((episode.slice(0, 0) for episode in episodes), None)
            for start in range(0, len(episodes), EPISODES_AT_A_TIME):
                batch = episodes[start : start + EPISODES_AT_A_TIME]
                writer.write(batch)
                if not is_declared and batch[0].action_space is None:
                    actions.add(batch)
    return Written(writer.files, writer.statistics, counts, first, actions)
