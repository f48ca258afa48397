"""Delete old versions of datasets, and files that belong to none."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pydantic import Field

from offline_core.data.datasets.catalogue import is_hidden
from offline_core.data.datasets.dataset import VERSIONS, Dataset, is_dataset
from offline_core.data.datasets.dataset_card import CARDS
from offline_core.data.datasets.tags import read_tags
from offline_core.data.store.holds import alone
from offline_core.data.store.location import Location
from offline_core.data.store.numbered_log import NumberedLog
from offline_core.errors import BusyError, LocationError
from offline_core.keeping.contents import Contents, read_contents
from offline_core.keeping.retention.config import VacuumConfig
from offline_core.keeping.retention.descriptions import beside, named_by_results
from offline_core.runtime.reporting.card import Card, Section
from offline_core.runtime.result import Part, Result
from offline_core.runtime.stage import Argument, stage
from offline_core.runtime.units import count_text, size_text

log = logging.getLogger(__name__)

MOST_NAMED = 20
"""Files of other programs on a card."""
_BUSY = "another run is writing to its dataset"


class VersionFate(Part):
    """What becomes of a version, and why."""

    uri: str
    version: int
    created_at: datetime
    bytes: int = Field(description="Of the files that only versions of this fate have; shared ones count for the first.")
    reason: str


class VacuumResult(Result):
    """What goes and what stays."""

    root: str
    removed: list[VersionFate] = Field(description="Versions that go.")
    kept: list[VersionFate] = Field(description="Versions that stay.")
    leftovers: dict[str, int] = Field(description="Bytes of each file that no version lists and that is old enough to go.")
    others: list[str] = Field([], description="Parquet files of other programs in the folders of datasets: they stay.")
    busy: list[str] = Field([], description="Datasets that other runs are writing: nothing of them went.")
    freed_bytes: int = Field(description="Bytes of all files that go.")
    deleted: bool = Field(description="False: nothing was deleted, this is what would be.")

    def card(self) -> Card:
        fates = [(version, "gone" if self.deleted else "goes") for version in self.removed] + [
            (version, "stays") for version in self.kept
        ]
        is_found = bool(self.removed or self.leftovers)
        return Card(
            "Vacuum",
            verdict="good" if self.deleted else "grey",
            word=("Deleted" if self.deleted else "Would delete") if is_found else "Nothing to delete",
            sentence=f"{count_text(len(self.removed), 'version')} and {count_text(len(self.leftovers), 'file')} of no version "
            f"below {self.root}, {size_text(self.freed_bytes)}; {count_text(len(self.kept), 'other version')} kept.",
            warnings=[
                f"Nothing of {uri} went, as another run is writing there. Do it again when that is done." for uri in self.busy
            ],
            sections=[
                Section(
                    "Versions",
                    columns=("version", "made", "size", "", "because"),
                    rows=[
                        (
                            f"{version.uri} {version.version}",
                            f"{version.created_at:%Y-%m-%d}",
                            size_text(version.bytes),
                            fate,
                            version.reason,
                        )
                        for version, fate in fates
                    ],
                ),
                Section("Files of no version", [f"{uri} ({size_text(size)})" for uri, size in self.leftovers.items()]),
                Section("Files of other programs, which stay", _first(self.others)),
            ],
            advice="Delete them by the same command with delete=true." if is_found and not self.deleted else "",
            about=(self.root, None),
            places=[f"{self.root}/{CARDS}/vacuum"],
        )


@stage(
    "vacuum",
    after="rollback",
    arguments=(Argument("root", "Folder of a dataset, or one that holds some.", "runs"),),
    hint="-s delete=true deletes them.",
)
def vacuum(config: VacuumConfig, *, root: str) -> VacuumResult:
    """List old versions of the datasets below a folder, and files that belong to none, or delete them for good.

    A version's manifest goes first and its files then, so a killed vacuum leaves whole versions and leftovers. Files that a
    version that stays lists are never deleted: versions share files. A dataset that a run is writing to stays as it is,
    whatever the age of its files, as that run may be about to list them; runs that begin meanwhile wait.

    Raises:
        DatasetNotFoundError: there is no dataset.
        CorruptFileError, CheckpointError: a manifest cannot be read, so it is not known what it needs; nothing is deleted.
        StorageError: the storage does not answer, or a file cannot be deleted.
    """
    plan = _Plan.of(config, root)
    busy: set[str] = set()
    with contextlib.ExitStack() as held:
        if config.delete:
            wanted = plan.touched
            busy = hold(held, plan.contents, wanted)
            plan = _Plan.of(config, root, only=wanted - busy)  # as it is now that no other run writes these
            for name in plan.touched:
                _delete(plan, name)
    result = VacuumResult(
        root=plan.contents.root.uri,
        removed=_fates(plan, stay=False),
        kept=_fates(plan, stay=True),
        leftovers={plan.contents.root.child(file).uri: size for file, size in plan.leftovers.items()},
        others=_others(plan.contents),
        busy=sorted(plan.contents.catalogue.location(name).uri for name in busy),
        freed_bytes=sum(fate.bytes for fate in _fates(plan, stay=False)) + sum(plan.leftovers.values()),
        deleted=config.delete,
    )
    log.info(
        "%s %d versions and %d leftovers below %s: %s bytes",
        "Deleted" if config.delete else "Would delete",
        len(result.removed),
        len(result.leftovers),
        result.root,
        f"{result.freed_bytes:,}",
    )
    for uri in result.busy:
        log.warning("Another run is writing to %s, so nothing was deleted there. Run this again when it is done.", uri)
    return result


def hold(held: contextlib.ExitStack, contents: Contents, names: Iterable[str]) -> set[str]:
    """Hold datasets alone until `held` ends, and return the names of those that other runs are writing."""
    busy = set()
    for name in sorted(names):  # in one order, so that of two runs one gets them all
        try:
            held.enter_context(alone(contents.catalogue.location(name).child(VERSIONS)))
        except BusyError:
            busy.add(name)
    return busy


@dataclass(frozen=True)
class _Plan:
    """What is to go."""

    contents: Contents
    reasons: Mapping[tuple[str, int], str]
    """By (URI, version), of those that stay."""
    leftovers: Mapping[str, int]
    """Bytes of the files that no version lists and that are old enough, by name relative to the root."""

    @classmethod
    def of(cls, config: VacuumConfig, root: str, *, only: Collection[str] | None = None) -> _Plan:
        """Look at what there is now.

        Arguments:
            only: names of the datasets that something may be deleted of; None: of all.
        """
        contents = read_contents(root, is_complete=True)
        users = _with_users(contents.root)
        everything = contents if users == contents.root.uri else read_contents(users, is_complete=True)
        reasons = _reasons_to_stay(everything, config)
        leftovers = _leftovers(contents, config)
        if only is not None:
            others = [dataset for name, versions in contents.datasets.items() if name not in only for dataset in versions]
            reasons |= {_key(dataset): reasons.get(_key(dataset), _BUSY) for dataset in others}
            leftovers = {file: size for file, size in leftovers.items() if contents.catalogue.owner(file) in only}
        return cls(contents, reasons, leftovers)

    def gone(self, name: str) -> list[Dataset]:
        """The versions of a dataset that go."""
        return [dataset for dataset in self.contents.datasets[name] if _key(dataset) not in self.reasons]

    @property
    def touched(self) -> set[str]:
        """Names of the datasets that something goes of."""
        owners = {self.contents.catalogue.owner(file) for file in self.leftovers}
        return {name for name in self.contents.datasets if name in owners or self.gone(name)}


def _with_users(root: Location) -> str:
    """Where policies and derived datasets are looked for: at the root, or of a dataset in the folder that holds it."""
    if not is_dataset(root.uri):
        return root.uri
    try:
        return root.parent.uri
    except LocationError:  # a whole bucket
        return root.uri


def _reasons_to_stay(contents: Contents, config: VacuumConfig) -> dict[tuple[str, int], str]:
    """By (URI, version), of those that stay."""
    reasons: dict[tuple[str, int], str] = {}
    before = datetime.now(UTC) - timedelta(days=config.older_than_days)
    for name, versions in contents.datasets.items():
        tags = {version: tag for tag, version in reversed(read_tags(contents.catalogue.location(name)).items())}
        for age, dataset in enumerate(reversed(versions)):
            number = dataset.manifest.version
            if age < config.keep_versions:
                reasons[_key(dataset)] = "the latest version" if age == 0 else f"one of the {config.keep_versions} latest"
            elif number in tags:
                reasons[_key(dataset)] = f"tagged {tags[number]}"
            elif dataset.manifest.created_at > before:
                reasons[_key(dataset)] = f"younger than {config.older_than_days:g} days"
    if config.keep_needed:
        _add_needed(contents, reasons)
    return reasons


def _add_needed(contents: Contents, reasons: dict[tuple[str, int], str]) -> None:
    """Adds what policies, stored results and versions that stay were made from; not earlier versions of the same dataset."""
    for name, policy in contents.policies.items():
        for needed in contents.made_from(policy.parents):
            reasons.setdefault(_key(needed), f"the policy {contents.catalogue.location(name).uri} was made from it")
    for uri, fingerprints in named_by_results(contents).items():
        for dataset in contents.with_fingerprints(fingerprints):
            reasons.setdefault(_key(dataset), f"{uri} names it")
    waiting = [dataset for dataset in contents.versions if _key(dataset) in reasons]
    while waiting:
        child = waiting.pop()
        for needed in contents.made_from(child.manifest.parents):
            if _key(needed) not in reasons and needed.location.uri != child.location.uri:
                reasons[_key(needed)] = f"{child.location.uri} version {child.manifest.version} was made from it"
                waiting.append(needed)


def _fates(plan: _Plan, *, stay: bool) -> list[VersionFate]:
    fates = []
    for versions in plan.contents.datasets.values():
        others = {file.path for dataset in versions if _key(dataset) in plan.reasons for file in dataset.manifest.all_files}
        counted = set() if stay else others
        for dataset in versions:
            if (_key(dataset) in plan.reasons) is not stay:
                continue
            own = [file for file in dataset.manifest.all_files if file.path not in counted]
            counted |= {file.path for file in own}
            fates.append(
                VersionFate(
                    uri=dataset.location.uri,
                    version=dataset.manifest.version,
                    created_at=dataset.manifest.created_at,
                    bytes=sum(file.bytes for file in own),
                    reason=plan.reasons.get(_key(dataset), "old, without a tag, and nothing needs it"),
                )
            )
    return fates


def _leftovers(contents: Contents, config: VacuumConfig) -> dict[str, int]:
    """Bytes of the files that no version lists and that are old enough, by name relative to the root."""
    before_ns = (time.time() - config.leftovers_older_than_days * 24 * 3600) * 1e9
    sizes = {}
    for name, versions in contents.datasets.items():
        listed = {file.path for dataset in versions for file in dataset.manifest.all_files}
        for file in sorted({*contents.files_of(name), *contents.late_files_of(name)} - listed):
            path = f"{name}/{file}" if name else file
            state = contents.catalogue.files[path]
            if 0 < (state.changed_ns or 0) < before_ns:
                sizes[path] = state.size
    return sizes


def _others(contents: Contents) -> list[str]:
    """Parquet files in the folders of datasets that are named otherwise than this package names its data."""
    uris = []
    for name, versions in contents.datasets.items():
        ours = {file.path for dataset in versions for file in dataset.manifest.all_files}
        ours |= {*contents.files_of(name), *contents.late_files_of(name)}
        others = (file for file in contents.catalogue.by_dataset[name] if file.endswith(".parquet") and not is_hidden(file))
        uris += [contents.catalogue.location(name).child(file).uri for file in sorted(others) if file not in ours]
    return uris


def _first(uris: list[str]) -> list[str]:
    more = [f"… and {len(uris) - MOST_NAMED:,} more"] if len(uris) > MOST_NAMED else []
    return [*uris[:MOST_NAMED], *more]


def _delete(plan: _Plan, name: str) -> None:
    """Deletes what goes of a dataset that this run holds alone."""
    contents, gone = plan.contents, plan.gone(name)
    folder, stay = contents.catalogue.location(name), [dataset for dataset in contents.datasets[name] if dataset not in gone]
    manifests = NumberedLog(folder, VERSIONS)
    committed = manifests.listed()
    manifests.mark_used(committed.numbers[-1], committed.marks)
    for dataset in gone:
        manifests.file(dataset.manifest.version).delete()
    prefix = f"{name}/" if name else ""
    listed = {f"{prefix}{file.path}" for dataset in stay for file in dataset.manifest.all_files}
    files = {f"{prefix}{file.path}" for dataset in gone for file in dataset.manifest.all_files}
    leftovers = {file for file in plan.leftovers if contents.catalogue.owner(file) == name}
    for file in sorted((files | leftovers) - listed):
        contents.root.inside(file).delete()
    shared = {file for dataset in stay for file in beside(contents, dataset)}
    for file in {file for dataset in gone for file in beside(contents, dataset)} & contents.catalogue.files.keys() - shared:
        contents.root.inside(file).delete()


def _key(dataset: Dataset) -> tuple[str, int]:
    return dataset.location.uri, dataset.manifest.version
