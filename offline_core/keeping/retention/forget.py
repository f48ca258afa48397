"""Take episodes out of every version of every dataset below a root, and their names out of all texts there."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from offline_core.data.curation.condition import Condition
from offline_core.data.datasets.copying import file_without
from offline_core.data.datasets.dataset import VERSIONS, Dataset
from offline_core.data.datasets.manifest import READS, FileEntry, Forgotten, Manifest, Operation
from offline_core.data.datasets.statistics import Statistics
from offline_core.data.episodes import columns
from offline_core.data.importing.imported import Imported
from offline_core.data.importing.late_files import imported_without
from offline_core.data.store.json_files import with_checksum
from offline_core.data.store.location import Location
from offline_core.errors import BusyError
from offline_core.keeping.retention.catalog import Catalog, read_catalog
from offline_core.keeping.retention.config import ForgetConfig
from offline_core.keeping.retention.descriptions import descriptions
from offline_core.keeping.retention.holding import all_datasets, hold
from offline_core.keeping.retention.subjects import Subjects, find_subjects, parents_first
from offline_core.keeping.retention.texts import Names, mentions, rewrite
from offline_core.policies.manifest import PolicyManifest
from offline_core.policies.registry.history import CHECKPOINTS, read_history
from offline_core.runtime.reporting.card import Card, Section
from offline_core.runtime.result import Result
from offline_core.runtime.units import count_text

log = logging.getLogger(__name__)

_EMPTY: Mapping[str, Any] = {"notes": [], "quarantine": None}
"""What replaces these in the report of a version."""


class VersionWithout(BaseModel):
    """What a version loses."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    uri: str
    version: int
    episodes: int
    steps: int


class ForgetResult(Result):
    """What was forgotten, or would be."""

    root: str
    ids: int = Field(description="Different episodes, parts counted once.")
    versions: list[VersionWithout] = Field(description="Versions that lose episodes.")
    policies: list[str] = Field(description="Checkpoints that learned from them: train these again, then delete them.")
    addresses: list[str] = Field(description="Aliases of registries that name such a checkpoint: promote another one there.")
    removed: list[str] = Field(description="Checks, cards, exports, estimates and decisions of the versions: make them again.")
    texts: list[str] = Field(description="Cards on which their names are replaced.")
    left: list[str] = Field(
        description="Other files that hold a name, such as raw logs, manifests of which a source, category or column is one, "
        "and files of no version that cannot be read: look at them by hand."
    )
    deleted: bool = Field(description="False: nothing was changed, this is what would be.")

    def card(self) -> Card:
        warnings = {
            "Policies that learned from them; train these again, then delete them": self.policies,
            "Aliases that name such a policy; promote another one there": self.addresses,
            "Other files that name them, or cannot be read; delete these by hand": self.left,
        }
        return Card(
            "Forgetting",
            verdict="good" if self.deleted else "grey",
            word="Forgot" if self.deleted else "Would forget",
            sentence=f"{count_text(self.ids, 'episode')} in {count_text(len(self.versions), 'version')} below {self.root}.",
            warnings=[f"{what}: {', '.join(found)}." for what, found in warnings.items() if found],
            sections=[
                Section(
                    "Versions",
                    columns=("version", "episodes", "steps"),
                    rows=[(f"{each.uri} {each.version}", each.episodes, each.steps) for each in self.versions],
                ),
                Section("Checks, cards, exports, estimates and decisions of these versions, which go", self.removed),
                Section("Texts in which their names are replaced", self.texts),
            ],
            next="" if self.deleted or not self.ids else "the same command with --delete",
            about=(self.root, None),
        )


def forget(config: ForgetConfig, *, root: str) -> ForgetResult:
    """Take episodes out of all versions of all datasets at or below `root`, or only say which.

    What describes the versions goes first. Then, what was made from a dataset before the dataset itself: files without the
    episodes are written, each manifest is replaced at once, and the old files are deleted. So a run that was killed leaves
    that by which the next one finds the rest. The manifest keeps a tombstone: when, how many, which files, and its former
    fingerprint, by which what was made from the version still finds it; neither the condition nor an id. Runs that
    begin to write to these datasets wait; what a run makes of them elsewhere meanwhile is not looked at. Weights of policies,
    copies elsewhere and Prefect's database are not changed.

    Raises:
        ConfigError: the condition cannot be understood, or no dataset has its columns.
        DatasetNotFoundError: there is no dataset.
        BusyError: another run is writing a dataset below the root; nothing was changed.
        CorruptFileError: a manifest or a file cannot be read.
        StorageError: the storage does not answer, or something cannot be written.
    """
    where = Condition.sql(config.where)
    with contextlib.ExitStack() as held:
        catalog = read_catalog(root)
        if config.delete:
            _finish(_held(held, catalog))
            catalog = read_catalog(root)
        return _found(catalog, where, config)


def _held(held: contextlib.ExitStack, catalog: Catalog) -> Catalog:
    """The same once no run writes there: what is being written may hold what is to be forgotten."""
    names: set[str] = set()
    while new := all_datasets(catalog) - names:
        if busy := hold(held, catalog, new):
            uris = ", ".join(catalog.place(name).uri for name in sorted(busy))
            raise BusyError(f"Other runs are writing to {uris}, so nothing was forgotten. Forget again when they are done.")
        names |= new
        catalog = read_catalog(catalog.root.uri)
    return catalog


def _found(catalog: Catalog, where: Condition, config: ForgetConfig) -> ForgetResult:
    """What is found, and taken out if `config` says so."""
    found, unreadable = find_subjects(catalog, where)
    names = Names.of({id for subjects in found.values() for id in subjects.ids}, config.where)
    versions = [each for name in found for each in _versions_without(catalog, name, found[name])]
    policies = _policies(catalog, {(each.uri, each.version) for each in versions})
    removed = descriptions(catalog, _opened(catalog, versions), policies)
    texts, left = ([file for file in files if file not in removed] for files in mentions(catalog, names))
    if config.delete:
        for file in removed:
            catalog.root.child(file).delete()
        for text in texts:
            rewrite(catalog, text, names)
        for name in reversed(parents_first(catalog)):
            _forget(catalog, name, found.get(name, Subjects()), names)
    result = ForgetResult(
        root=catalog.root.uri,
        ids=len({id for subjects in found.values() for id in subjects.ids}),
        versions=versions,
        policies=[catalog.place(name).uri for name in policies],
        addresses=[address for name in policies for address in _addresses(catalog.place(name))],
        removed=[catalog.root.child(file).uri for file in removed],
        texts=[catalog.root.child(file).uri for file in texts],
        left=[*(catalog.root.child(file).uri for file in (*left, *unreadable)), *_manifests_left(catalog, names)],
        deleted=config.delete,
    )
    log.info(
        "%s %d episodes in %d versions below %s; %d policies learned from them",
        "Forgot" if config.delete else "Would forget",
        result.ids,
        len(result.versions),
        result.root,
        len(result.policies),
    )
    return result


def _forget(catalog: Catalog, name: str, subjects: Subjects, names: Names) -> None:
    """Rewrites one dataset."""
    known = catalog.datasets[name]
    written = {}
    for path, meant in subjects.files.items():
        holder, entry = next((each, file) for each in known for file in each.manifest.files if file.path == path)
        index = holder.with_files([entry]).index()
        written[path] = file_without(holder, entry, index, meant, holder.location)
    place, now = catalog.place(name), []
    for dataset in reversed(known):
        manifest = manifest_without(dataset, written, subjects.related_ids, names)
        now.append(dataset.manifest if manifest is None else manifest)
        if manifest is not None:
            replace_manifest(dataset, manifest)
    kept = {entry.path for manifest in now for entry in manifest.all_files}
    late = {entry.path for dataset in known for entry in dataset.manifest.all_files}
    for path in {*subjects.files, *subjects.leftovers, *late} - kept:
        place.inside(path).delete()


def _manifests_left(catalog: Catalog, names: Names) -> list[str]:
    """Manifests that hold a name in a file's URI, a category or a column: what these are is not changed."""
    told = ((version, names.redacted(version.manifest.operation.config, everywhere=False)) for version in catalog.versions)
    left = (
        (version.location, version.manifest.model_copy(update={"operation": Operation(name=""), "report": {}}), config)
        for version, config in told
    )
    return [
        f"{location.uri}/{VERSIONS}/{manifest.version:06d}.json"
        for location, manifest, config in left
        if manifest.to_json().encode() in names or json.dumps(config).encode() in names
    ]


def _finish(catalog: Catalog) -> None:
    """Delete the files that a run which was killed has replaced and not deleted."""
    for name, known in catalog.datasets.items():
        listed = {file.path for dataset in known for file in dataset.manifest.all_files}
        buried = {path for dataset in known for each in dataset.manifest.forgotten for path in each.files} - listed
        for path in (path for path in buried if (f"{name}/{path}" if name else path) in catalog.sizes):
            catalog.place(name).inside(path).delete()


def _versions_without(catalog: Catalog, name: str, subjects: Subjects) -> list[VersionWithout]:
    found = []
    for dataset in catalog.datasets[name]:
        files = [file.path for file in dataset.manifest.files if file.path in subjects.files]
        if files:
            found.append(
                VersionWithout(
                    uri=dataset.location.uri,
                    version=dataset.manifest.version,
                    episodes=sum(int(subjects.files[path].sum()) for path in files),
                    steps=sum(subjects.steps[path] for path in files),
                )
            )
    return found


def _policies(catalog: Catalog, versions: set[tuple[str, int]]) -> list[str]:
    """The policies that learned from these versions, now or before a run that was killed, or began as one that did."""
    fingerprints: set[str] = set()
    found: dict[str, None] = {}
    grows = True
    while grows:
        learned = {name: manifest for name, manifest in catalog.policies.items() if _learned(catalog, manifest, versions)}
        began = {
            name: manifest
            for name, manifest in catalog.policies.items()
            if any(parent.kind == "checkpoint" and parent.fingerprint in fingerprints for parent in manifest.parents)
        }
        both = learned | began
        grows = both.keys() != found.keys()
        found = dict.fromkeys(both)
        fingerprints = {manifest.fingerprint for manifest in both.values()}
    return sorted(found)


def _opened(catalog: Catalog, versions: list[VersionWithout]) -> list[Dataset]:
    wanted = {(each.uri, each.version) for each in versions}
    return [dataset for dataset in catalog.versions if (dataset.location.uri, dataset.manifest.version) in wanted]


def _addresses(checkpoint: Location) -> list[str]:
    """The addresses of a checkpoint in a registry; none if it is in no registry."""
    folder, _, name = checkpoint.uri.rpartition("/")
    if not folder.endswith(f"/{CHECKPOINTS}"):
        return []
    entry = checkpoint.parent.parent
    aliases = read_history(entry).aliases
    return [f"{entry.uri}@{alias}" for alias, move in aliases.items() if move.checkpoint == f"{CHECKPOINTS}/{name}"]


def _learned(catalog: Catalog, manifest: PolicyManifest, versions: set[tuple[str, int]]) -> bool:
    """Whether a policy learned from one of these versions: the first parent is what it learned from, others were held out."""
    first = manifest.parents[:1]
    data: list[Dataset] = catalog.made_from(first)
    former = {each.fingerprint for dataset in data for each in dataset.manifest.forgotten if each.episodes}
    return any(parent.fingerprint in former for parent in first) or any(
        (dataset.location.uri, dataset.manifest.version) in versions for dataset in data
    )


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
    imported = Imported.of(before)
    rest = None if imported is None else imported_without(dataset.location, imported, ids)
    kept = before.kept if rest is None or rest == imported else rest.kept
    replaced = [entry for entry in before.files if entry.path in files]
    config = names.redacted(before.operation.config, everywhere=False)
    told = {
        "operation": before.operation.model_copy(update={"config": config}),
        "report": names.redacted(before.report, everywhere=True),
    }
    after = before.model_copy(update={**told, "kept": kept})
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
        return Statistics.of_episodes(group.episodes() for group in dataset.row_groups())
    index = dataset.index() if dataset.manifest.files else None
    return Statistics.of([] if index is None else [{name: index[name].to_numpy() for name in columns.EPISODE_SUMMARY}])
