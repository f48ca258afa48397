"""From one of our two formats to the other, losing nothing."""

from __future__ import annotations

import logging

from pydantic import BaseModel, ConfigDict, Field

from offline_core.conversion.config import ConversionConfig
from offline_core.conversion.importing import open_or_import
from offline_core.progress import progress
from offline_core.storage.committing import find_version
from offline_core.storage.copying import commit_copy
from offline_core.storage.dataset import Dataset, DatasetRef
from offline_core.storage.manifest import Operation, Statistics
from offline_core.storage.preparing import prepared
from offline_core.storage.reader import row_groups
from offline_core.storage.writer import EpisodeWriter

log = logging.getLogger(__name__)


class ConversionResult(BaseModel):
    """The same episodes in another format."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: DatasetRef
    source: DatasetRef
    statistics: Statistics = Field(description="Of both.")
    reused: bool = Field(False, description="It was there already, made by the same operation of the same things.")


def convert_table(config: ConversionConfig, *, dataset: str, output: str, version: int | None = None) -> ConversionResult:
    """Writes the episodes of a dataset, in their order, in the format wanted: the next version of `output`.

    Memory: one row group, whatever the size of the dataset.

    Arguments:
        dataset: URI of a dataset; anything else is imported first, as it explains itself.
        output: URI of a dataset, created if need be; it may be the same.
        version: of the source, the latest if None.

    Raises:
        DataError: what is there cannot be read, or not be held by the format; the message names file and episode.
    """
    source = open_or_import(dataset, version, output=output)
    operation = Operation.of("convert_table", config)
    if found := find_version(output, operation, [source.parent_entry]):
        return _result(found, source, reused=True)
    total = source.manifest.statistics.steps
    with (
        prepared(output) as root,
        EpisodeWriter(root, "part", format=config.format, config=config.files) as writer,
        progress(total, what="convert", unit="step") as bar,
    ):
        for group in row_groups(source):
            episodes = group.episodes()
            writer.write(episodes)
            bar.update(sum(map(len, episodes)))
    converted = commit_copy(output, writer, [source], operation=operation)
    log.info("Converted %s to %s", source.ref, converted.ref)
    return _result(converted, source)


def _result(converted: Dataset, source: Dataset, *, reused: bool = False) -> ConversionResult:
    statistics = converted.manifest.statistics
    return ConversionResult(dataset=converted.ref, source=source.ref, statistics=statistics, reused=reused)
