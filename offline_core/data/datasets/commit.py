"""Commit versions of datasets: the folder is held, files are written, then one exclusive create of the manifest."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import gymnasium as gym

from offline_core.data.datasets.about import About, begin_about
from offline_core.data.datasets.damage import missing_files, unusable_files
from offline_core.data.datasets.dataset import VERSIONS, Dataset, open_version, versions
from offline_core.data.datasets.manifest import (
    FileEntry,
    Manifest,
    Operation,
    Parent,
    identity_of,
)
from offline_core.data.datasets.result_cache import RESULT_FILE, is_result
from offline_core.data.datasets.statistics import Statistics
from offline_core.data.episodes import space_to_json
from offline_core.data.episodes.codecs import Format
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.data.store.holds import writing
from offline_core.data.store.json_files import with_checksum
from offline_core.data.store.location import Location
from offline_core.data.store.numbered_log import NumberedLog
from offline_core.data.store.partial_files import remove_partial_files, remove_partial_files_of_failed_run
from offline_core.errors import (
    ConfigError,
    CorruptFileError,
    EmptyDatasetError,
    LocationError,
    OfflineError,
    StorageError,
    VersionExistsError,
)
from offline_core.runtime.config import EnvironmentSpec
from offline_core.runtime.prefetch import AT_A_TIME, several

log = logging.getLogger(__name__)


def prepare_dataset(uri: str) -> Location:
    """Creates the folder of a dataset that is about to be written, and checks that it is writable.

    Files that killed writers left there are removed, see `remove_partial_files`.

    Raises:
        StorageError: no permission, no space, or a file is in the way.
    """
    location = Location.of(uri)
    location.child(VERSIONS).make_folder()
    remove_partial_files(location)
    return location


@contextlib.contextmanager
def prepared(uri: str) -> Iterator[Location]:
    """The folder of a dataset, see `prepare_dataset`, while a version is written and committed.

    Others may write versions meanwhile; vacuum and forget leave the dataset alone, or are waited for. On failure, what its
    workers left is removed, and the folders that were created for it if they are empty.

    Raises:
        ConfigError: the folder holds the result of a stage, and no dataset.
        StorageError: no permission, no space, or a file is in the way.
    """
    location = Location.of(uri)
    file = location.child(RESULT_FILE)
    if not location.child(VERSIONS).is_folder() and file.is_file() and is_result(file):
        raise ConfigError(f"{location.uri} holds the result of another stage, and no dataset: give another output.")
    created = _missing(location.child(VERSIONS))
    try:
        prepare_dataset(uri)
        with writing(location.child(VERSIONS)):
            yield location
    except BaseException:
        remove_partial_files_of_failed_run(location)
        for folder in created:
            try:
                folder.remove_empty_folder()
            except OfflineError:  # not empty, or the storage does not answer; the first error is raised
                break
        raise


def _missing(folder: Location) -> list[Location]:
    """This folder and those above it that do not exist, innermost first; in an object store there is only the folder itself."""
    if not folder.is_local:
        return [] if folder.is_folder() else [folder]
    missing = []
    while not folder.is_folder() and folder.parent != folder:
        missing.append(folder)
        folder = folder.parent
    return missing


def commit(
    uri: str,
    files: Sequence[FileEntry],
    *,
    format: Format,
    operation: Operation,
    statistics: Statistics,
    parents: Sequence[Parent] = (),
    environment: EnvironmentSpec | None = None,
    observation_space: gym.Space[Any] | None = None,
    action_space: gym.Space[Any] | None = None,
    input_columns: InputColumns | None = None,
    report: Mapping[str, Any] = MappingProxyType({}),
    kept: Mapping[str, Any] | None = None,
    about: About = About(),
    version: int | None = None,
) -> Dataset:
    """Makes `files`, already written below `uri`, visible as a version: the only way to add one.

    Arguments:
        kept: what the operation keeps for the next of its kind, see `Manifest.kept`.
        about: what the source says of itself. A new dataset begins with it, and with what its parents say.
        version: the required number; None: the next one, and if another writer is first, the one after it. If the same
            operation made the same files from the same parents before, that version is returned and none is added.

    Raises:
        EmptyDatasetError: there is nothing to commit.
        StorageError: a file is missing: it was deleted, or this run slept so long that others took it for dead.
        VersionExistsError: another writer committed that `version` first; nothing of either is lost.
    """
    if not files:
        raise EmptyDatasetError(f"Nothing was written to {uri}, so there is no version to commit.")
    location = Location.of(uri)
    manifest = Manifest(
        version=version or 1,
        format=format,
        operation=operation,
        parents=list(parents),
        environment=environment,
        observation_space=None if observation_space is None else space_to_json(observation_space),
        action_space=None if action_space is None else space_to_json(action_space),
        input_columns=input_columns,
        statistics=statistics,
        files=list(files),
        report=dict(report),
        kept=None if kept is None else dict(kept),
    )
    with writing(location.child(VERSIONS)):
        _check_files(Dataset(location, manifest))
        begin_about(location, manifest.parents, about)
        return _numbered(location, manifest, version)


def _check_files(dataset: Dataset) -> None:
    missing = [path for path in missing_files(dataset) if not dataset.location.child(path).is_file()]  # listings may lag
    if missing:
        raise StorageError(
            f"{len(missing)} of the {len(dataset.manifest.all_files)} files for the next version of {dataset.location.uri} are "
            f"not there, first {missing[0]}: another run deleted them. No version was committed. Run this again."
        )


def _numbered(location: Location, manifest: Manifest, version: int | None) -> Dataset:
    """Creates the manifest under that number, or the next one."""
    fingerprint = manifest.fingerprint
    seen, log_of_versions = 0, NumberedLog(location, VERSIONS)
    while True:
        known, marks, _ = listed = log_of_versions.listed()
        if version is None:
            new = [number for number in known if number > seen]
            if same := _newest(location, new, lambda manifest: manifest.fingerprint == fingerprint):
                log_of_versions.mark_used(known[-1], marks)  # its writer may have died before that
                return _with_latest(same, known)
        seen = listed.highest
        if version is not None and version <= seen and version not in known:
            raise VersionExistsError(
                f"{location.uri} has had versions up to {seen}, so version {version} cannot be committed. Commit the next one."
            )
        manifest = manifest.model_copy(update={"version": version or seen + 1})
        try:
            log_of_versions.file(manifest.version).create(with_checksum(manifest.to_json()))
        except VersionExistsError as error:
            if version is not None:
                raise VersionExistsError(
                    f"Version {version} of {location.uri} was committed by another writer. Your files are complete: "
                    "commit them as the next version."
                ) from error
            log.info(
                "Version %d of %s was committed by another writer; this becomes the next one.", manifest.version, location.uri
            )
            continue
        log_of_versions.mark_used(manifest.version, marks)
        return Dataset(location, manifest)


def discard(location: Location, files: Iterable[FileEntry]) -> None:
    """Deletes files that were written for a version and are not to be in it, but for those that another version has.

    Equal content has an equal name, so what was written just now may be a file of a version that was there before. Where it
    cannot be read what a version has, all of them stay for vacuum.
    """
    paths = {file.path for file in files}
    for number in versions(location.uri) if paths else ():
        if (dataset := _readable(location, number)) is None:
            log.warning("Version %d of %s cannot be read, so %d files stay there.", number, location.uri, len(paths))
            return
        paths -= {file.path for file in dataset.manifest.all_files}
    for path in sorted(paths):
        location.child(path).delete()


def find_version(uri: str, operation: Operation, parents: Sequence[Parent]) -> Dataset | None:
    """The newest version that the same operation made from the same parents, or None if it has to be made.

    Its files are checked, see `unusable_files`. Its `ref` names the latest version if that is another one.
    """
    identity, known = identity_of(operation, parents), versions(uri)
    dataset = _newest(Location.of(uri), known, lambda manifest: manifest.identity == identity)
    if dataset is None:
        return None
    if unusable := unusable_files(dataset):
        path, wrong = next(iter(unusable.items()))
        log.warning(
            "%s: %d of its files cannot be used, first %s, which %s. It is made again.", dataset.ref, len(unusable), path, wrong
        )
        return None
    dataset = _with_latest(dataset, known)
    log.log(logging.INFO if dataset.latest is None else logging.WARNING, "Reused: %s", dataset.ref)
    return dataset


def _with_latest(dataset: Dataset, known: Sequence[int]) -> Dataset:
    """The dataset with `latest` set, if its own version is not the latest."""
    latest = known[-1]
    return dataset if latest == dataset.manifest.version else dataclasses.replace(dataset, latest=latest)


def _newest(location: Location, numbers: Sequence[int], is_wanted: Callable[[Manifest], bool]) -> Dataset | None:
    for stop in range(len(numbers), 0, -AT_A_TIME):
        some = numbers[max(0, stop - AT_A_TIME) : stop]
        for dataset in several(functools.partial(_readable, location), reversed(some)):
            if dataset is not None and is_wanted(dataset.manifest):
                return dataset
    return None


def _readable(location: Location, version: int) -> Dataset | None:
    with contextlib.suppress(CorruptFileError, LocationError):  # raised when that version is opened
        return open_version(location, version)
    return None
