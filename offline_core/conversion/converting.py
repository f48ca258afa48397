"""From one of our two formats to the other, losing nothing."""

from __future__ import annotations

import contextlib
import functools
import logging
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from offline_core.conversion.config import ConversionConfig
from offline_core.conversion.importing import open_or_import
from offline_core.engine import each
from offline_core.progress import progress
from offline_core.ray_session import ray_session
from offline_core.storage.committing import find_version
from offline_core.storage.copying import commit_copy
from offline_core.storage.dataset import Dataset, DatasetRef
from offline_core.storage.location import Location
from offline_core.storage.manifest import Format, Operation, Statistics
from offline_core.storage.preparing import prepared
from offline_core.storage.reader import row_groups
from offline_core.storage.writer import EpisodeWriter, WrittenFiles

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

    Memory: one row group for each process, whatever the size of the dataset.

    Arguments:
        dataset: URI of a dataset; anything else is imported first, as it explains itself.
        output: URI of a dataset, created if need be; it may be the same.
        version: of the source, the latest if None.

    Raises:
        DataError: what is there cannot be read, or not be held by the format; the message names file and episode.
    """
    source = open_or_import(dataset, version, output=output)
    operation = conversion(config)
    if found := find_version(output, operation, [source.parent_entry]):
        return _result(found, source, reused=True)
    shares = _shares(source, config.files.max_bytes_per_file)
    with (
        prepared(output) as root,
        ray_session() if config.engine == "ray" else contextlib.nullcontext(),
        progress(source.manifest.statistics.steps, what="convert", unit="step") as bar,
    ):
        written = []
        for part in each(config.engine, functools.partial(_written, root, config), shares):
            written.append(part)
            bar.update(part.statistics.steps)
    converted = commit_copy(output, _joined(config.format, written), [source], operation=operation)
    log.info("Converted %s to %s", source.ref, converted.ref)
    return _result(converted, source)


def conversion(config: ConversionConfig) -> Operation:
    """What identifies it: not how fast it is."""
    return Operation.of("convert_table", config, exclude={"engine"})


class _Share(NamedTuple):
    """Some files of a dataset, which become files of their own."""

    prefix: str
    files: Dataset
    """The dataset, as if it had no others."""


def _shares(source: Dataset, size_bytes: int) -> list[_Share]:
    """Files that follow each other, until they have so many bytes; not by the engine, so that both write the same."""
    manifest = source.manifest
    before = np.cumsum([0, *(entry.bytes for entry in manifest.files)])[:-1]
    numbers = before // size_bytes
    groups = [[manifest.files[i] for i in np.flatnonzero(numbers == number)] for number in np.unique(numbers)]
    groups = groups or [[]]  # there may be no episode
    prefixes = ["part"] if len(groups) < 2 else [f"part-{number:05d}" for number in range(len(groups))]
    return [
        _Share(prefix, replace(source, manifest=manifest.model_copy(update={"files": files})))
        for prefix, files in zip(prefixes, groups, strict=True)
    ]


def _written(root: Location, config: ConversionConfig, share: _Share) -> WrittenFiles:
    with EpisodeWriter(root, share.prefix, format=config.format, config=config.files) as writer:
        for group in row_groups(share.files):
            writer.write(group.episodes())
    return writer.written


def _joined(format: Format, written: list[WrittenFiles]) -> WrittenFiles:
    statistics = functools.reduce(Statistics.merge, (part.statistics for part in written))
    return WrittenFiles(format, [file for part in written for file in part.files], statistics)


def _result(converted: Dataset, source: Dataset, *, reused: bool = False) -> ConversionResult:
    statistics = converted.manifest.statistics
    return ConversionResult(dataset=converted.ref, source=source.ref, statistics=statistics, reused=reused)
