"""Compact a dataset: the same episodes in files of another size."""

from __future__ import annotations

import numpy as np

from offline_core.data.curation.config import CompactionConfig
from offline_core.data.datasets.copying import copy_episodes
from offline_core.data.datasets.dataset import Dataset, DatasetRef, open_committed
from offline_core.data.datasets.dataset_card import dataset_card
from offline_core.data.datasets.new_version import NewVersion
from offline_core.data.datasets.statistics import Statistics
from offline_core.data.datasets.writer import EpisodeWriter
from offline_core.runtime.reporting.card import Card
from offline_core.runtime.result import Result
from offline_core.runtime.stage import DATASET, VERSION, Made, output, stage
from offline_core.runtime.units import count_text


class CompactionResult(Result):
    """The same data twice."""

    dataset: DatasetRef
    source: DatasetRef
    files_before: int
    files_after: int
    statistics: Statistics

    def card(self) -> Card:
        return dataset_card(
            "Compaction",
            [self.dataset],
            {"compacted": self.dataset},
            verdict="good",
            word="Compacted",
            sentence=f"{count_text(self.files_before, 'file')} became {self.files_after:,}; no episode changed.",
            facts={"From": self.source, "To": self.dataset},
        )


@stage(
    "compact",
    after="prune",
    arguments=(DATASET, output("runs/compacted"), VERSION),
    writes=("dataset",),
    hint="Example: -s files.max_bytes_per_file=268435456.",
    plan="plans.conversion:plan_compaction",
)
def compact(config: CompactionConfig, *, dataset: str, output: str, version: int | None = None) -> Made[CompactionResult]:
    """Copy a dataset into files of another size.

    Its episodes are copied in their order and byte for byte: the next version of `output`.

    Arguments:
        dataset: URI of a dataset.
        output: URI of a dataset, created if need be; it may be the same.
        version: of the source, the latest if None.
    """
    source = open_committed(dataset, version)

    def result(compacted: Dataset) -> CompactionResult:
        return CompactionResult(
            dataset=compacted.ref,
            source=source.ref,
            files_before=len(source.manifest.files),
            files_after=len(compacted.manifest.files),
            statistics=compacted.manifest.statistics,
        )

    begun = yield NewVersion(output, config, [source.parent_entry], result)
    index = source.index()
    with EpisodeWriter(begun.folder, "part", format=source.manifest.format, config=config.files) as writer:
        copy_episodes(source, index, np.zeros(len(index), int), [writer], what="compact")
    return begun.commit_copy(writer.written._replace(statistics=source.manifest.statistics), [source])
