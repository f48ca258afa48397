"""A version of a dataset without some of its episodes, in place: other files, another manifest, and a tombstone in it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl

from offline_core.conversion.late_files import imported_without
from offline_core.datasets.copying import NOWHERE, copy_episodes
from offline_core.datasets.dataset import VERSIONS, Dataset
from offline_core.datasets.episode_index import episode_index
from offline_core.datasets.manifest import FileEntry, Forgotten, Manifest, Statistics
from offline_core.datasets.row_groups import row_groups
from offline_core.datasets.statistics import StatisticsBuilder
from offline_core.datasets.writer import EpisodeWriter, add_columns, statistics_of
from offline_core.episodes import columns
from offline_core.retention.subjects import one_file
from offline_core.retention.texts import Names
from offline_core.storage.json_files import with_checksum

_EMPTY: Mapping[str, Any] = {"notes": [], "quarantine": None}
"""What replaces these in the report of a version."""


def without(dataset: Dataset, path: str, meant: np.ndarray) -> list[FileEntry]:
    """Write a file of the dataset again without the episodes that are `meant`; none if none are left.

    Arguments:
        meant: (episodes,) bool.
    """
    entry = next(file for file in dataset.manifest.files if file.path == path)
    part = one_file(dataset, entry)
    index = episode_index(part, columns.EPISODE_SUMMARY)
    with EpisodeWriter(dataset.location, "part", format=dataset.manifest.format) as writer:
        copy_episodes(part, index, np.where(meant, NOWHERE, 0), [writer], what="forget")
    return writer.files


def manifest_without(
    dataset: Dataset, files: Mapping[str, Sequence[FileEntry]], ids: Collection[str], names: Names
) -> Manifest | None:
    """The manifest with other files, and without names; None: it stays as it is.

    Statistics are computed anew; notes of an import and its list of unreadable rows go, as they may tell of an episode.

    Arguments:
        files: what stands for each file that was written again.
        ids: of the episodes, without the suffixes of parts.
    """
    before = dataset.manifest
    imported = imported_without(dataset.location, before.imported, ids)
    replaced = [entry for entry in before.files if entry.path in files]
    config = names.redacted(before.operation.config, everywhere=False)
    told = {
        "operation": before.operation.model_copy(update={"config": config}),
        "report": names.redacted(before.report, everywhere=True),
    }
    after = before.model_copy(update={**told, "imported": imported})
    if not replaced and after == before:
        return None
    if replaced:
        after = after.model_copy(update={"report": {name: _EMPTY.get(name, value) for name, value in after.report.items()}})
        now = [entry for old in before.files for entry in files.get(old.path, [old])]
        after = after.model_copy(update={"files": now})
        after = after.model_copy(update={"statistics": _statistics(Dataset(dataset.location, after))})
    tombstone = Forgotten(
        at=datetime.now(UTC),
        episodes=before.statistics.episodes - after.statistics.episodes,
        steps=before.statistics.steps - after.statistics.steps,
        fingerprint=before.fingerprint,
        files=[entry.path for entry in before.all_files if entry.path not in {each.path for each in after.all_files}],
    )
    return after.model_copy(update={"forgotten": [*before.forgotten, tombstone]})


def replace_manifest(dataset: Dataset, manifest: Manifest) -> None:
    """Let a version be what another manifest says, at once."""
    file = dataset.location.child(f"{VERSIONS}/{manifest.version:06d}.json")
    file.write(with_checksum(manifest.to_json()))


def _statistics(dataset: Dataset) -> Statistics:
    if not dataset.manifest.files:
        return statistics_of([])
    index: pl.DataFrame = episode_index(dataset, columns.EPISODE_SUMMARY)
    statistics = statistics_of([{name: index[name].to_numpy() for name in columns.EPISODE_SUMMARY}])
    if dataset.manifest.statistics.columns is None:
        return statistics
    builder = StatisticsBuilder()
    for group in row_groups(dataset):
        add_columns(builder, group.episodes())
    return statistics.model_copy(update={"columns": builder.result()})
