"""A version of a dataset without some of its episodes, in place: other files, another manifest, and a tombstone in it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from offline_core.data.datasets.dataset import VERSIONS, Dataset
from offline_core.data.datasets.episode_index import episode_index
from offline_core.data.datasets.manifest import READS, FileEntry, Forgotten, Manifest, Statistics
from offline_core.data.datasets.replacing import statistics_of_episodes
from offline_core.data.datasets.row_groups import row_groups
from offline_core.data.datasets.writer import statistics_of
from offline_core.data.episodes import columns
from offline_core.data.importing.late_files import imported_without
from offline_core.data.store.json_files import with_checksum
from offline_core.keeping.retention.texts import Names

_EMPTY: Mapping[str, Any] = {"notes": [], "quarantine": None}
"""What replaces these in the report of a version."""


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
        now = dataset.with_files(entry for old in before.files for entry in files.get(old.path, [old]))
        update = {
            "report": {name: _EMPTY.get(name, value) for name, value in after.report.items()},
            "files": now.manifest.files,
            "statistics": _statistics(now, of_columns=before.statistics.columns is not None),
        }
        after = after.model_copy(update=update)
    tombstone = Forgotten(
        at=datetime.now(UTC),
        episodes=before.statistics.episodes - after.statistics.episodes,
        steps=before.statistics.steps - after.statistics.steps,
        fingerprint=before.fingerprint,
        files=[entry.path for entry in before.all_files if entry.path not in {each.path for each in after.all_files}],
    )
    return after.model_copy(update={"manifest_version": READS, "forgotten": [*before.forgotten, tombstone]})


def replace_manifest(dataset: Dataset, manifest: Manifest) -> None:
    """Let a version be what another manifest says, at once."""
    file = dataset.location.child(f"{VERSIONS}/{manifest.version:06d}.json")
    file.write(with_checksum(manifest.to_json()))


def _statistics(dataset: Dataset, *, of_columns: bool) -> Statistics:
    if of_columns:
        return statistics_of_episodes(group.episodes() for group in row_groups(dataset))
    index = episode_index(dataset) if dataset.manifest.files else None
    return statistics_of([] if index is None else [{name: index[name].to_numpy() for name in columns.EPISODE_SUMMARY}])
