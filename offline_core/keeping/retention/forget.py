"""Take episodes out of every version of every dataset below a root, and their names out of all texts there."""

from __future__ import annotations

import contextlib
import json
import logging
import posixpath
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import Field

from offline_core.data.curation.condition import Condition
from offline_core.data.datasets.copying import file_without, statistics_anew
from offline_core.data.datasets.dataset import VERSIONS, Dataset
from offline_core.data.datasets.manifest import READS, FileEntry, Forgotten, Manifest, Operation
from offline_core.data.datasets.marks import FILE as MARKS_FILE
from offline_core.data.datasets.marks import FOLDER as MARKS
from offline_core.data.datasets.marks import forget_marks
from offline_core.data.importing.imported import Imported
from offline_core.data.store.json_files import with_checksum
from offline_core.data.store.location import Location
from offline_core.data.store.numbered_log import NumberedLog
from offline_core.data.store.stores import WRITER
from offline_core.errors import BusyError
from offline_core.keeping.contents import Contents, read_contents
from offline_core.keeping.retention.config import ForgetConfig
from offline_core.keeping.retention.descriptions import descriptions
from offline_core.keeping.retention.subjects import Subjects, find_subjects
from offline_core.keeping.retention.texts import Names, mentions, rewrite
from offline_core.keeping.retention.vacuum import hold
from offline_core.policies.manifest import PolicyManifest
from offline_core.policies.registry import CHECKPOINTS, read_history
from offline_core.runtime.reporting.card import Card, Section
from offline_core.runtime.result import Part, Result
from offline_core.runtime.units import count_text

log = logging.getLogger(__name__)

_EMPTY: Mapping[str, Any] = {"notes": [], "quarantine": None}
"""What replaces these in the report of a version."""


class VersionWithout(Part):
    """What a version loses."""

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
            warnings=[f"{what}: {', '.join(names)}." for what, names in warnings.items() if names],
            sections=[
                Section(
                    "Versions",
                    columns=("version", "episodes", "steps"),
                    rows=[(f"{version.uri} {version.version}", version.episodes, version.steps) for version in self.versions],
                ),
                Section("Checks, cards, exports, estimates and decisions of these versions, which go", self.removed),
                Section("Texts in which their names are replaced", self.texts),
            ],
            advice="" if self.deleted or not self.ids else "Delete them by the same command with --delete.",
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
        contents = read_contents(root, is_complete=True)
        if config.delete:
            _finish(_held(held, contents))
            contents = read_contents(root, is_complete=True)
        return _found(contents, where, config)


def _held(held: contextlib.ExitStack, contents: Contents) -> Contents:
    """The same once no run writes there: what is being written may hold what is to be forgotten."""
    names: set[str] = set()
    while new := _all_datasets(contents) - names:
        if busy := hold(held, contents, new):
            uris = ", ".join(contents.catalogue.location(name).uri for name in sorted(busy))
            raise BusyError(f"Other runs are writing to {uris}, so nothing was forgotten. Forget again when they are done.")
        names |= new
        contents = read_contents(contents.root.uri, is_complete=True)
    return contents


def _all_datasets(contents: Contents) -> set[str]:
    """Names of all datasets, also of those whose first version is being written."""
    files = (file for file in contents.catalogue.of("mark") if posixpath.basename(file).startswith(WRITER))
    named = (*contents.catalogue.of("version"), *files)
    return {posixpath.dirname(posixpath.dirname(file)) for file in named}


def _found(contents: Contents, where: Condition, config: ForgetConfig) -> ForgetResult:
    """What is found, and taken out if `config` says so."""
    subjects_by_name, unreadable = find_subjects(contents, where)
    names = Names.of({id for subjects in subjects_by_name.values() for id in subjects.ids}, config.where)
    holding = [
        (version, subjects)
        for name, subjects in subjects_by_name.items()
        for version in contents.datasets[name]
        if _files(version, subjects)
    ]
    policies = _policies(contents, [version for version, _ in holding])
    removed = descriptions(contents, [version for version, _ in holding], policies)
    marks = {posixpath.join(name, MARKS, MARKS_FILE) for name in subjects_by_name}
    texts, left = ([file for file in files if file not in {*removed, *marks}] for files in mentions(contents, names))
    if config.delete:
        for file in removed:
            contents.root.child(file).delete()
        for text in texts:
            rewrite(contents, text, names)
        for name in reversed(contents.parents_first()):
            _forget(contents, name, subjects_by_name.get(name, Subjects()), names)
    result = ForgetResult(
        root=contents.root.uri,
        ids=len({id for subjects in subjects_by_name.values() for id in subjects.ids}),
        versions=[_without(version, subjects) for version, subjects in holding],
        policies=[contents.catalogue.location(name).uri for name in policies],
        addresses=[address for name in policies for address in _addresses(contents.catalogue.location(name))],
        removed=[contents.root.child(file).uri for file in removed],
        texts=[contents.root.child(file).uri for file in texts],
        left=[*(contents.root.child(file).uri for file in (*left, *unreadable)), *_manifests_left(contents, names)],
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


def _forget(contents: Contents, name: str, subjects: Subjects, names: Names) -> None:
    """Rewrites one dataset."""
    versions = contents.datasets[name]
    written = {}
    for path, meant in subjects.files.items():
        holder, entry = next((dataset, file) for dataset in versions for file in dataset.manifest.files if file.path == path)
        index = holder.with_files([entry]).index()
        written[path] = file_without(holder, entry, index, meant, holder.location)
    folder, now = contents.catalogue.location(name), []
    forget_marks(folder, subjects.ids)
    for dataset in reversed(versions):
        manifest = manifest_without(dataset, written, subjects.related_ids, names)
        now.append(dataset.manifest if manifest is None else manifest)
        if manifest is not None:
            replace_manifest(dataset, manifest)
    kept = {entry.path for manifest in now for entry in manifest.all_files}
    late = {entry.path for dataset in versions for entry in dataset.manifest.all_files}
    for path in {*subjects.files, *subjects.leftovers, *late} - kept:
        folder.inside(path).delete()


def _manifests_left(contents: Contents, names: Names) -> list[str]:
    """Manifests that hold a name in a file's URI, a category or a column: what these are is not changed."""
    left = []
    for version in contents.versions:
        config = names.redacted(version.manifest.operation.config, everywhere=False)
        rest = version.manifest.model_copy(update={"operation": Operation(name=""), "report": {}})
        if rest.to_json().encode() in names or json.dumps(config).encode() in names:
            left.append(NumberedLog(version.location, VERSIONS).file(rest.version).uri)
    return left


def _finish(contents: Contents) -> None:
    """Delete the files that a run which was killed has replaced and not deleted."""
    for name, versions in contents.datasets.items():
        listed = {file.path for dataset in versions for file in dataset.manifest.all_files}
        buried = {path for dataset in versions for tombstone in dataset.manifest.forgotten for path in tombstone.files} - listed
        for path in (path for path in buried if (f"{name}/{path}" if name else path) in contents.catalogue.files):
            contents.catalogue.location(name).inside(path).delete()


def _files(dataset: Dataset, subjects: Subjects) -> list[str]:
    """The files of a version that hold some of the episodes."""
    return [file.path for file in dataset.manifest.files if file.path in subjects.files]


def _without(dataset: Dataset, subjects: Subjects) -> VersionWithout:
    """What a version loses."""
    files = _files(dataset, subjects)
    episodes, steps = sum(int(subjects.files[path].sum()) for path in files), sum(subjects.steps[path] for path in files)
    return VersionWithout(uri=dataset.location.uri, version=dataset.manifest.version, episodes=episodes, steps=steps)


def _policies(contents: Contents, versions: Collection[Dataset]) -> list[str]:
    """The policies that learned from these versions, now or before a run that was killed, or began as one that did.

    The first parent of a policy is what it learned from; others were held out.
    """
    known = {fingerprint for dataset in versions for fingerprint in dataset.manifest.fingerprints}
    known |= {
        tombstone.fingerprint for dataset in contents.versions for tombstone in dataset.manifest.forgotten if tombstone.episodes
    }
    policies: set[str] = set()

    def learned(manifest: PolicyManifest) -> bool:
        began = [parent for parent in manifest.parents if parent.kind == "checkpoint"]
        return any(parent.fingerprint in known for parent in (*manifest.parents[:1], *began))

    while new := {name for name, manifest in contents.policies.items() if name not in policies and learned(manifest)}:
        policies |= new
        known |= {contents.policies[name].fingerprint for name in new}
    return sorted(policies)


def _addresses(checkpoint: Location) -> list[str]:
    """The addresses of a checkpoint in a registry; none if it is in no registry."""
    folder, _, name = checkpoint.uri.rpartition("/")
    if not folder.endswith(f"/{CHECKPOINTS}"):
        return []
    entry = checkpoint.parent.parent
    aliases = read_history(entry).aliases
    return [f"{entry.uri}@{alias}" for alias, move in aliases.items() if move.checkpoint == f"{CHECKPOINTS}/{name}"]


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
    rest = None if imported is None else imported.without(dataset.location, ids)
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
            "statistics": statistics_anew(now, of_columns=before.statistics.columns is not None),
        }
        after = after.model_copy(update=update)
    tombstone = Forgotten(
        at=datetime.now(UTC),
        episodes=before.statistics.episodes - after.statistics.episodes,
        steps=before.statistics.steps - after.statistics.steps,
        fingerprint=before.fingerprint,
        files=[
            entry.path for entry in before.all_files if entry.path not in {kept_entry.path for kept_entry in after.all_files}
        ],
    )
    return after.model_copy(update={"manifest_version": READS, "forgotten": [*before.forgotten, tombstone]})


def replace_manifest(dataset: Dataset, manifest: Manifest) -> None:
    """Let a version be what another manifest says, at once."""
    NumberedLog(dataset.location, VERSIONS).file(manifest.version).write(with_checksum(manifest.to_json()))
