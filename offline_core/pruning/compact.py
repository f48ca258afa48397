"""The same episodes in files of another size."""

from __future__ import annotations

import logging

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from offline_core.conversion.importing import open_or_import
from offline_core.pruning.config import CompactionConfig
from offline_core.storage.committing import find_version
from offline_core.storage.copying import commit_copy, copy_episodes
from offline_core.storage.dataset import Dataset, DatasetRef
from offline_core.storage.episode_index import episode_index
from offline_core.storage.manifest import Operation, Statistics
from offline_core.storage.preparing import prepared
from offline_core.storage.writer import EpisodeWriter

log = logging.getLogger(__name__)


class CompactionResult(BaseModel):
    """The same data twice."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: DatasetRef
    source: DatasetRef
    files_before: int
    files_after: int
    statistics: Statistics
    reused: bool = Field(False, description="It was there already, made by the same operation of the same things.")


def compact_dataset(config: CompactionConfig, *, dataset: str, output: str, version: int | None = None) -> CompactionResult:
    """Copies all episodes, in their order and byte for byte, into files of the size wanted: the next version of `output`.

    Arguments:
        dataset: URI of a dataset, or of a folder of RLlib's episode files.
        output: URI of a dataset, created if need be; it may be the same.
        version: of the source, the latest if None.
    """
    source = open_or_import(dataset, version, output=output)
    operation = compaction(config)
    if found := find_version(output, operation, [source.parent_entry]):
        return _result(found, source, reused=True)
    index = episode_index(source)
    with (
        prepared(output) as root,
        EpisodeWriter(root, "part", format=source.manifest.format, config=config.files) as writer,
    ):
        copy_episodes(source, index, np.zeros(len(index), int), [writer], what="compact")
    compacted = commit_copy(output, writer.written, [source], operation=operation, statistics=source.manifest.statistics)
    result = _result(compacted, source)
    log.info("Compacted %d files into %d: %s", result.files_before, result.files_after, compacted.ref)
    return result


def compaction(config: CompactionConfig) -> Operation:
    """What identifies it."""
    return Operation.of("compact_dataset", config)


def _result(compacted: Dataset, source: Dataset, *, reused: bool = False) -> CompactionResult:
    return CompactionResult(
        dataset=compacted.ref,
        source=source.ref,
        files_before=len(source.manifest.files),
        files_after=len(compacted.manifest.files),
        statistics=compacted.manifest.statistics,
        reused=reused,
    )
