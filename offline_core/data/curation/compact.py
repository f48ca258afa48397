"""Compact a dataset: the same episodes in files of another size."""

from __future__ import annotations

from typing import Any

import numpy as np

from offline_core.data.curation.config import CompactionConfig
from offline_core.data.datasets.copying import copy_episodes
from offline_core.data.datasets.dataset import DatasetRef, open_committed
from offline_core.data.datasets.deriving import derive
from offline_core.data.datasets.episode_index import episode_index
from offline_core.data.datasets.manifest import Operation, Statistics
from offline_core.data.datasets.writer import EpisodeWriter, WrittenFiles
from offline_core.data.store.location import Location
from offline_core.runtime.result import Result


class CompactionResult(Result):
    """The same data twice."""

    dataset: DatasetRef
    source: DatasetRef
    files_before: int
    files_after: int
    statistics: Statistics


def compact_dataset(config: CompactionConfig, *, dataset: str, output: str, version: int | None = None) -> CompactionResult:
    """Copies all episodes, in their order and byte for byte, into files of the size wanted: the next version of `output`.

    Arguments:
        dataset: URI of a dataset.
        output: URI of a dataset, created if need be; it may be the same.
        version: of the source, the latest if None.
    """
    source = open_committed(dataset, version)

    def write(root: Location) -> tuple[WrittenFiles, dict[str, Any]]:
        index = episode_index(source)
        with EpisodeWriter(root, "part", format=source.manifest.format, config=config.files) as writer:
            copy_episodes(source, index, np.zeros(len(index), int), [writer], what="compact")
        return writer.written._replace(statistics=source.manifest.statistics), {}

    compacted, reused = derive(output, compaction(config), [source], write)
    return CompactionResult(
        dataset=compacted.ref,
        source=source.ref,
        files_before=len(source.manifest.files),
        files_after=len(compacted.manifest.files),
        statistics=compacted.manifest.statistics,
        reused=reused,
    )


def compaction(config: CompactionConfig) -> Operation:
    """The operation that identifies a compaction."""
    return Operation.of("compact_dataset", config)
