"""Convert a dataset between the two storage formats, without loss."""

from __future__ import annotations

import contextlib
import functools
from typing import NamedTuple

import numpy as np
from pydantic import Field

from offline_core.data.datasets.dataset import Dataset, DatasetRef, open_committed
from offline_core.data.datasets.dataset_card import dataset_card
from offline_core.data.datasets.new_version import NewVersion
from offline_core.data.datasets.statistics import Statistics
from offline_core.data.datasets.writer import EpisodeWriter, WrittenFiles
from offline_core.data.importing.config import ConversionConfig
from offline_core.data.store.location import Location
from offline_core.runtime.engine import map_items
from offline_core.runtime.prefetch import Prefetched
from offline_core.runtime.progress import progress
from offline_core.runtime.ray_session import ray_session
from offline_core.runtime.reporting.card import Card
from offline_core.runtime.result import Result
from offline_core.runtime.stage import DATASET, VERSION, Made, output, stage
from offline_core.runtime.units import count_text

_HOW_FAST = {"engine"}
"""Parameters that do not change what is written."""


class ConversionResult(Result):
    """The same episodes in another format."""

    dataset: DatasetRef
    source: DatasetRef
    statistics: Statistics = Field(description="Of both.")

    def card(self) -> Card:
        before, after = (ref.bytes / max(1, ref.steps) for ref in (self.source, self.dataset))
        return dataset_card(
            "Conversion",
            [self.dataset],
            {"converted": self.dataset},
            verdict="good",
            word="Converted",
            sentence=f"{count_text(self.dataset.episodes, 'episode')}, {count_text(self.dataset.steps, 'step')}; "
            "nothing is lost.",
            facts={"From": self.source, "To": self.dataset, "Bytes per step": f"{before:.1f} before, {after:.1f} after"},
        )


@stage(
    "convert",
    after="import",
    arguments=(DATASET, output("runs/converted"), VERSION),
    writes=("dataset",),
    hint="-s format=table writes a step a row.",
    plan="plans.conversion:plan_conversion",
)
def convert(config: ConversionConfig, *, dataset: str, output: str, version: int | None = None) -> Made[ConversionResult]:
    """Write a dataset an episode a row, or a step a row, losing nothing.

    The episodes stay in their order: the next version of `output`.
    Memory: one row group for each process, whatever the size of the dataset.

    Arguments:
        dataset: URI of a dataset.
        output: URI of a dataset, created if need be; it may be the same.
        version: of the source, the latest if None.

    Raises:
        DataError: an episode cannot be read, or the format cannot hold it; the message names file and episode.
    """
    source = open_committed(dataset, version)

    def result(converted: Dataset) -> ConversionResult:
        return ConversionResult(dataset=converted.ref, source=source.ref, statistics=converted.manifest.statistics)

    begun = yield NewVersion(output, config, [source.parent_entry], result, exclude=_HOW_FAST)
    written = []
    with (
        ray_session() if config.engine == "ray" else contextlib.nullcontext(),
        progress(source.manifest.statistics.steps, what="convert", unit="step") as bar,
    ):
        shares = _shares(source, config.files.max_bytes_per_file)
        for part in map_items(config.engine, functools.partial(_written, begun.folder, config), shares):
            written.append(part)
            bar.update(part.statistics.steps)
    statistics = functools.reduce(Statistics.merge, (part.statistics for part in written))
    files = [file for part in written for file in part.files]
    return begun.commit_copy(WrittenFiles(config.format, files, statistics), [source])


class _Share(NamedTuple):
    """Some files of a dataset, which one task converts."""

    prefix: str
    files: Dataset
    """The dataset, as if it had no others."""


def _shares(source: Dataset, size_bytes: int) -> list[_Share]:
    """Neighbouring files of `size_bytes` together; the engine does not matter, so both write the same."""
    manifest = source.manifest
    before = np.cumsum([0, *(entry.bytes for entry in manifest.files)])[:-1]
    numbers = before // size_bytes
    groups = [[manifest.files[i] for i in np.flatnonzero(numbers == number)] for number in np.unique(numbers)]
    groups = groups or [[]]  # there may be no episode
    prefixes = ["part"] if len(groups) < 2 else [f"part-{number:05d}" for number in range(len(groups))]
    return [_Share(prefix, source.with_files(files)) for prefix, files in zip(prefixes, groups, strict=True)]


def _written(root: Location, config: ConversionConfig, share: _Share) -> WrittenFiles:
    with EpisodeWriter(root, share.prefix, format=config.format, config=config.files) as writer:
        for episodes in Prefetched(group.episodes() for group in share.files.row_groups()):
            writer.write(episodes)
    return writer.written
