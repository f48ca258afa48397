"""A dataset: a folder whose versions are committed manifests.

    <uri>/_versions/000001.json      one exclusive create makes a version visible, whole, and only once
    <uri>/_versions/last-000001      the highest number that a version ever had: no other version gets it, or a lower one
    <uri>/…/<name>-<hash>.parquet    data files; those that no manifest lists are leftovers of a crash

A folder of Parquet files without `_versions` is read as it is: it becomes version 0 of a dataset without history. So
whoever writes a dataset calls `prepare_dataset` first, lest a crash leave what looks like one of those.
"""

from __future__ import annotations

import functools
import hashlib
import posixpath
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from offline_core.episodes import columns, space_from_json, space_to_json
from offline_core.episodes.table import spaces_of
from offline_core.errors import (
    CorruptFileError,
    DatasetNotFoundError,
    EmptyDatasetError,
    SchemaError,
    VersionNotFoundError,
)
from offline_core.storage.json_files import reason_of, without_checksum
from offline_core.storage.location import Location
from offline_core.storage.manifest import READS, FileEntry, Format, Manifest, Operation, Parent, Statistics
from offline_core.storage.parquet_files import read_footer
from offline_core.storage.storage_errors import storage_errors
from offline_core.storage.stores import TEMPORARY

VERSIONS = "_versions"
LAST = "last-"
"""Prefix of the file in `VERSIONS` whose name says which number was the highest, whatever manifests were deleted."""


class DatasetRef(BaseModel):
    """Names one version of one dataset: what stages pass on instead of data."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    uri: str = Field(description="The dataset's folder.")
    version: int = Field(description="The committed version; 0 for a folder without versions.")
    fingerprint: str = Field(description="Identifies the content of that version.")
    episodes: int
    steps: int
    bytes: int
    latest: int | None = Field(
        None,
        exclude_if=lambda latest: latest is None,
        description="The latest version of the dataset, where a step reuses an older one.",
    )

    def __str__(self) -> str:
        size = f"{self.episodes:,} episodes, {self.steps:,} steps, {self.bytes:,} bytes"
        older = "" if self.latest is None else f", not the latest version, which is {self.latest}"
        return f"{self.uri} version {self.version} ({size}){older}"


@dataclass(frozen=True, slots=True)
class Dataset:
    """One version of a dataset, opened: its manifest is read, its data is not."""

    location: Location
    manifest: Manifest
    latest: int | None = None
    """See `DatasetRef.latest`."""

    @property
    def ref(self) -> DatasetRef:
        """The name of this version."""
        manifest = self.manifest
        return DatasetRef(
            uri=self.location.uri,
            version=manifest.version,
            fingerprint=manifest.fingerprint,
            episodes=manifest.statistics.episodes,
            steps=manifest.statistics.steps,
            bytes=sum(file.bytes for file in manifest.files),
            latest=self.latest,
        )

    @property
    def parent_entry(self) -> Parent:
        """This version as a parent of what is made from it."""
        ref = self.ref
        return Parent(kind="dataset", uri=ref.uri, version=ref.version, fingerprint=ref.fingerprint)

    @property
    def is_foreign(self) -> bool:
        """It has no manifest of ours: episodes may be there twice, columns packed, metadata missing."""
        return self.manifest.version == 0

    @property
    def observation_space(self) -> gym.Space[Any] | None:
        return None if self.manifest.observation_space is None else space_from_json(self.manifest.observation_space)

    @property
    def action_space(self) -> gym.Space[Any] | None:
        return None if self.manifest.action_space is None else space_from_json(self.manifest.action_space)

    @property
    def paths(self) -> list[str]:
        """The data files as the filesystem names them, in the order of the manifest."""
        return [self.location.child(file.path).path for file in self.manifest.files]


def versions(uri: str) -> list[int]:
    """The committed versions of a dataset, oldest first; none if there is no such dataset (yet)."""
    return numbers(Location.of(uri))[0]


def numbers(location: Location) -> tuple[list[int], list[int]]:
    """(the committed versions, the numbers that are marked as the highest ever), each in order."""
    names = location.child(VERSIONS).files(recursive=False)
    committed = sorted(int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit())
    return committed, sorted(int(name[len(LAST) :]) for name in names if name.startswith(LAST) and name[len(LAST) :].isdigit())


def is_dataset(uri: str) -> bool:
    """Whether there is a dataset of ours, be it that no version of it was committed yet."""
    return Location.of(uri).child(VERSIONS).is_folder()


def open_dataset(uri: str, version: int | None = None) -> Dataset:
    """One version of a dataset, the latest if none is named.

    Raises:
        DatasetNotFoundError: there is neither a dataset nor a folder of Parquet files, or none was committed yet.
        VersionNotFoundError: the dataset has no such version.
        EmptyDatasetError: the folder holds no Parquet file.
        CorruptFileError: the manifest, or a file of a folder without one, cannot be read.
    """
    location = Location.of(uri)
    known = versions(uri)
    if not known and version in (None, 0):
        return _open_foreign(location)
    wanted = known[-1] if version is None and known else version
    if wanted not in known:
        raise VersionNotFoundError(f"Dataset {uri} has no version {version}; it has {known or 'none'}.")
    return open_version(location, wanted)


def open_version(location: Location, version: int) -> Dataset:
    """That version, which has to be there.

    Raises:
        CorruptFileError: its manifest cannot be read, is damaged, or was written by a newer version of this package.
        LocationError: it, or a file that it names, lies elsewhere.
    """
    place = location.inside(f"{VERSIONS}/{version:06d}.json")
    data = without_checksum(place.read(), place.uri)
    try:
        manifest = Manifest.model_validate_json(data, extra="ignore")  # down to models that forbid them
    except ValidationError as error:
        reason = reason_of(error, "manifest_version", READS)
        raise CorruptFileError(
            f"Manifest {version:06d}.json of {location.uri} cannot be read: {reason}. Open an older version."
        ) from error
    location.check_names(file.path for file in manifest.files)
    return Dataset(location, manifest)


def _open_foreign(location: Location) -> Dataset:
    if not location.is_folder():
        location.check_bucket()
        raise DatasetNotFoundError(
            f"There is no dataset at {location.uri}. Check the path, or record one with 'offline record'."
        )
    if location.child(VERSIONS).is_folder():
        raise DatasetNotFoundError(
            f"No version of {location.uri} was committed: what writes it is not done, or has failed. Run it (again)."
        )

    @functools.cache
    def is_another_dataset(folder: str) -> bool:
        """Whether a dataset with versions of its own lies there or above: its files are not this one's."""
        if not folder:
            return False
        return location.child(f"{folder}/{VERSIONS}").is_folder() or is_another_dataset(posixpath.dirname(folder))

    names = [
        name
        for name in location.files()
        if name.endswith(".parquet")
        and not posixpath.basename(name).startswith(TEMPORARY)
        and not is_another_dataset(posixpath.dirname(name))
    ]
    if not names:
        raise EmptyDatasetError(f"{location.uri} holds neither committed versions nor Parquet files.")
    schemas: dict[str, pa.Schema] = {}
    files = []
    for name in names:
        metadata = read_footer(location.child(name))
        schemas[name] = metadata.schema.to_arrow_schema()
        size, sha256 = size_and_hash(location.child(name))
        files.append(FileEntry(path=name, rows=metadata.num_rows, episodes=0, steps=0, bytes=size, sha256=sha256))
    formats: dict[Format, list[str]] = {}
    for name, schema in schemas.items():
        formats.setdefault("episodes" if columns.ITEM in schema.names else "table", []).append(name)
    if len(formats) > 1:
        raise SchemaError(
            f"{location.uri} mixes episode files ({formats['episodes'][0]}, …) with table files ({formats['table'][0]}, …); "
            "keep each kind in a folder of its own."
        )
    observation_space, action_space = spaces_of(next(iter(schemas.values())))
    manifest = Manifest(
        version=0,
        format=next(iter(formats)),
        operation=Operation(name="foreign"),
        observation_space=None if observation_space is None else space_to_json(observation_space),
        action_space=None if action_space is None else space_to_json(action_space),
        statistics=Statistics(),
        files=files,
    )
    return Dataset(location, manifest)


def size_and_hash(location: Location) -> tuple[int, str]:
    """The bytes of a file, and their SHA-256."""
    size, sha256 = 0, hashlib.sha256()
    with storage_errors("read", location.uri), location.filesystem.open_input_stream(location.path) as stream:
        while data := stream.read(8 * 2**20):  # in an object store, a request each
            sha256.update(data)
            size += len(data)
    return size, sha256.hexdigest()
