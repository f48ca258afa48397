"""A dataset: a folder whose versions are committed manifests; a version is opened and read as a `Dataset`.

    <uri>/_versions/000001.json      one exclusive create makes a version visible as a whole, and only once
    <uri>/_versions/last-000001      the highest number that a version ever had, see `numbered_log`
    <uri>/…/<name>-<hash>.parquet    data files; those that no manifest lists are leftovers of a crash

A folder of Parquet files without `_versions` is read as version 0 of a dataset without history. Writers call
`prepare_dataset` first, so that a crash does not leave what looks like such a folder.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import posixpath
import shlex
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import pyarrow as pa
from pydantic import Field, ValidationError

from offline_core.control_characters import visible_line
from offline_core.data.datasets import tags
from offline_core.data.datasets.catalogue import VERSIONS as VERSIONS
from offline_core.data.datasets.folder_kind import not_a_dataset
from offline_core.data.datasets.manifest import READS, FileEntry, Manifest, Operation, Parent
from offline_core.data.datasets.row_group import RowGroup, batches, read_together, row_groups_of
from offline_core.data.datasets.statistics import Statistics
from offline_core.data.episodes import Episode, columns, space_from_json, space_to_json
from offline_core.data.episodes.codecs import Codec, codec_of
from offline_core.data.episodes.index import Read, index_schema
from offline_core.data.episodes.spaces import StoredSpaces, spaces_of
from offline_core.data.store.json_files import reason_of, without_checksum
from offline_core.data.store.location import Location
from offline_core.data.store.numbered_log import NumberedLog
from offline_core.data.store.parquet_files import read_footer
from offline_core.data.store.storage_errors import as_os_error, storage_errors
from offline_core.data.store.temporary_names import TEMPORARY
from offline_core.errors import (
    CorruptFileError,
    DatasetNotFoundError,
    EmptyDatasetError,
    NotImportedError,
    SchemaError,
    VersionNotFoundError,
    within,
)
from offline_core.runtime.engine import is_rays, ray_errors
from offline_core.runtime.garbage import collection_paused
from offline_core.runtime.prefetch import AT_A_TIME
from offline_core.runtime.reporting.card import Card
from offline_core.runtime.result import Part
from offline_core.runtime.units import count_text, size_text

if TYPE_CHECKING:
    import polars as pl

log = logging.getLogger(__name__)

BATCH_BYTES = 16 * 2**20
"""Row groups that a thread reads together for the index, before compression, as long as it reads few of their columns."""


class DatasetRef(Part):
    """The name of a dataset version, which stages pass on instead of data."""

    uri: str = Field(description="The dataset's folder.")
    version: int = Field(description="The committed version; 0 for a folder without versions.")
    fingerprint: str = Field(description="Identifies the content of that version.")
    episodes: int
    steps: int
    bytes: int
    latest: int | None = Field(
        None,
        description="The latest version of the dataset, where a step reuses an older one.",
    )

    def __str__(self) -> str:
        if not self.version:
            return f"{self.uri} (files without a version, {size_text(self.bytes)})"
        size = f"{count_text(self.episodes, 'episode')}, {count_text(self.steps, 'step')}, {size_text(self.bytes)}"
        older = "" if self.latest is None else f", not the latest version, which is {self.latest}"
        return f"{self.uri} version {self.version} ({size}){older}"


@dataclass(frozen=True, slots=True, repr=False)
class Dataset:
    """One version of a dataset, opened: its manifest is read, its data is when it is asked for."""

    location: Location
    manifest: Manifest
    latest: int | None = None
    """See `DatasetRef.latest`."""

    @property
    def statistics(self) -> Statistics:
        """Counts, returns, lengths and the statistics of columns, from the manifest."""
        return self.manifest.statistics

    def __repr__(self) -> str:
        return visible_line(f"Dataset({', '.join(f'{name}={value}' for name, value in self._described().items())})")

    def _repr_html_(self) -> str:
        return Card("Dataset", self._described()).html(is_page=False)

    def _described(self) -> dict[str, object]:
        manifest, statistics = self.manifest, self.statistics
        facts: dict[str, object] = {"uri": self.location.uri, "version": manifest.version, "format": manifest.format}
        if self.is_foreign:  # its episodes were never counted
            return facts | {"files": len(manifest.files)}
        environment = None if manifest.environment is None else manifest.environment.id
        counts = {"episodes": f"{statistics.episodes:,}", "steps": f"{statistics.steps:,}"}
        actions = {} if manifest.actions is None else {"actions": manifest.actions}
        return facts | counts | {"environment": environment} | actions

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
        """This version as a parent in the manifest of a new one."""
        ref = self.ref
        return Parent(kind="dataset", uri=ref.uri, version=ref.version, fingerprint=ref.fingerprint)

    def with_files(self, files: Iterable[FileEntry]) -> Dataset:
        """The same as if it had these files; its statistics stay those of the version."""
        return replace(self, manifest=self.manifest.model_copy(update={"files": [*files]}))

    @property
    def is_foreign(self) -> bool:
        """It has no manifest: episodes may occur twice, columns may be packed, metadata may be missing."""
        return self.manifest.version == 0

    @property
    def observation_space(self) -> gym.Space[Any] | None:
        return None if self.manifest.observation_space is None else space_from_json(self.manifest.observation_space)

    @property
    def action_space(self) -> gym.Space[Any] | None:
        return None if self.manifest.action_space is None else space_from_json(self.manifest.action_space)

    @property
    def spaces(self) -> StoredSpaces:
        """(observation space, action space): from the manifest, else from the first episode, else None."""
        known = (self.observation_space, self.action_space)
        if all(space is not None for space in known) or (self.is_foreign and self.codec.needs_import):
            return known
        first = self.first_episode()
        return known if first is None else (first.observation_space, first.action_space)

    @property
    def paths(self) -> list[str]:
        """The data files as the filesystem names them, in the order of the manifest."""
        return [self.location.child(file.path).path for file in self.manifest.files]

    @property
    def codec(self) -> Codec:
        """How its files hold episodes."""
        return self.manifest.codec

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the first file."""
        for entry in self.manifest.files:
            return read_footer(self.location.child(entry.path), entry.footer_sha256).schema.to_arrow_schema()
        raise EmptyDatasetError(f"{self.location.uri} has no files.")

    def row_groups(self, require: Sequence[str] = (), *, only: Container[int] | None = None) -> Iterator[RowGroup]:
        """Its row groups in the order of the manifest; reads neither data nor, unless the manifest is old, footers.

        Arguments:
            require: columns that it must have.
            only: numbers of those to return; None: all.

        Raises:
            SchemaError: it lacks a required column.
            CorruptFileError: a file of an older manifest is truncated or damaged; the message names it. Others raise it when
                they are read.
        """
        present = self.schema.names if require else []
        if missing := [name for name in require if name not in present]:
            raise SchemaError(f"{self.location.uri} has no column {', '.join(missing)}; it has {', '.join(present)}.")
        spaces = (self.observation_space, self.action_space)
        yield from row_groups_of(self.location, self.manifest.files, self.manifest.format, spaces, only)

    def tables(self, names: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Its rows, one table a row group, read one after the other."""
        return (group.read(names) for group in self.row_groups())

    def episodes(self) -> Generator[Episode]:
        """Its episodes one after the other, each once and validated.

        Episodes and pieces of them that occur again (same id and first step) are left out and counted in the log.

        Raises:
            CorruptFileError, EpisodeError, UnsafeDataError: naming the file and the episode.
            SchemaError: step tables that were not imported.
        """
        if self.is_foreign and self.codec.needs_import:
            raise not_imported(self.location.uri)
        seen: set[tuple[str, int]] = set()
        duplicates = 0
        for group in self.row_groups():
            episodes = group.episodes()
            with within(uri=group.uri):
                for episode in episodes:
                    episode.validate()
            for episode in episodes:
                if (episode.eps_id, episode.t_started) in seen:
                    duplicates += 1
                    continue
                seen.add((episode.eps_id, episode.t_started))
                yield episode
        if duplicates:
            log.warning("%s: left out %d duplicate episodes, read %d", self.location.uri, duplicates, len(seen))

    def first_episode(self) -> Episode | None:
        """The first one, not validated; None if there is none."""
        return next((group.first_episode() for group in self.row_groups() if group.num_rows), None)

    def index(self, names: Sequence[str] = columns.EPISODE_SUMMARY) -> pl.DataFrame:
        """The columns `names` of `columns.EPISODE_METADATA`, or `ROW_GROUP`; one row an episode, in the order of the data.

        Reads only these columns of episode files, and five columns of step tables. In step tables, success and policy_id read
        one more column each, and content reads all observations and actions. Older episode files lack these three: success
        and policy_id are null, content is computed.

        Raises:
            SchemaError: it is a foreign folder, which has no such columns.
        """
        import polars as pl  # here, as it is slow to import

        if self.is_foreign:
            raise not_imported(self.location.uri)

        def read(groups: list[RowGroup]) -> pl.DataFrame:
            with within(uri=groups[0].uri):
                return pl.DataFrame(self.codec.index(names, functools.partial(read_together, groups, numbered=True)))

        is_stored = {*names} <= {*self.codec.metadata, columns.ROW_GROUP}
        pool = ThreadPoolExecutor(AT_A_TIME)
        try:
            frames = pool.map(read, batches(self.row_groups(), BATCH_BYTES if is_stored else 0))
            return pl.concat([pl.DataFrame(index_schema(names).empty_table()), *frames])
        finally:
            pool.shutdown(cancel_futures=True)

    def indexed_row_groups(self, index: pl.DataFrame) -> Iterator[tuple[RowGroup, np.ndarray]]:
        """Its row groups, each with the numbers of its episodes, which are rows of its `index`."""
        ends = np.cumsum(self.codec.rows_of(index[columns.LENGTH].to_numpy()))
        rows = episode = 0
        for group in self.row_groups():
            rows += group.num_rows
            first, episode = episode, int(np.searchsorted(ends, rows, side="right"))
            yield group, np.arange(first, episode)

    def constants(self, name: str) -> list[object]:
        """For each episode the value that a column of its steps has in all of them, None if it has several or none."""
        return self._of_episodes(self.codec.constants, name)

    def in_time(self) -> np.ndarray:
        """(episodes,) int64, their numbers in the order in which they began.

        That is by the column `time`, if it holds times as imports keep them, in nanoseconds since 1970; else as they lie, as
        episodes without a step do. Reads that column of all steps.
        """
        import polars as pl  # here, as it is slow to import

        order, known = np.arange(self.manifest.statistics.episodes), self.manifest.statistics.columns
        if known is not None and columns.TIME not in known:
            return order
        begun = self._of_episodes(self.codec.firsts, columns.TIME)
        times = [time for time in begun if time is not None]
        if not times or not all(isinstance(time, int) and time >= columns.LEAST_NANOSECONDS for time in times):
            return order
        filled = pl.Series(begun, dtype=pl.Int64).fill_null(strategy="forward").fill_null(strategy="backward")
        return np.argsort(filled.to_numpy(), kind="stable")

    def _of_episodes(self, values: Callable[[str, Read], list[object]], name: str) -> list[object]:
        groups = batches(self.row_groups(), BATCH_BYTES)
        reads = (functools.partial(read_together, some, numbered=True) for some in groups)
        return [value for read in reads for value in values(name, read)]

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Raise the errors of reading it, in this process or by Ray, as this package's errors, which name a damaged file."""
        try:
            with ray_errors():
                yield
        except (pa.ArrowException, OSError) as error:
            self._find_damage()
            if as_os_error(error) not in (None, error):  # it is a store's, whose footers can be read by now
                with storage_errors("read", self.location.uri):
                    raise
            raise
        except Exception as error:
            if is_rays(error):
                self._find_damage()
            raise

    def _find_damage(self) -> None:
        for entry in self.manifest.files:
            read_footer(self.location.child(entry.path), entry.footer_sha256)


def versions(uri: str) -> list[int]:
    """The committed versions of a dataset, oldest first; empty if there is none."""
    return NumberedLog(Location.of(uri), VERSIONS).listed().numbers


def is_dataset(uri: str) -> bool:
    """Whether this is a dataset, with or without a committed version."""
    folder = Location.of(uri).child(VERSIONS)
    return folder.is_folder() and not any(name.endswith(".manifest") for name in folder.files(recursive=False))  # Lance's


def addressed(uri: str, version: int | None = None) -> tuple[str, int | None]:
    """(URI, version) of a dataset or of an address `<uri>@<tag>`, see `tags`; a folder of that very name comes first.

    Raises:
        VersionNotFoundError: there is no such tag.
    """
    address = tags.split_address(uri) if version is None else None
    if address is None or not is_dataset(address[0]) or Location.of(uri).is_folder():
        return uri, version
    return address[0], tags.resolve(Location.of(address[0]), address[1])


def not_imported(uri: str) -> NotImportedError:
    """The error for files without a manifest, in which an episode may occur twice or in parts."""
    folder = uri.partition("*")[0].rstrip("/") + "-imported"
    return NotImportedError(
        f"{uri} has no manifest, so it is not a dataset yet. Import it first, then use {folder}: "
        f"'offline import {shlex.quote(uri)} -o {shlex.quote(folder)}', "
        f"or in Python offline.import_data({uri!r}, output={folder!r}).",
        uri=uri,
    )


def open_dataset(uri: str, version: int | None = None) -> Dataset:
    """One version of a dataset, the latest if none is named. `uri` may be an address, `runs/data@tag`.

    Raises:
        DatasetNotFoundError: there is neither a dataset nor a folder of Parquet files, or none was committed yet.
        VersionNotFoundError: the dataset has no such version.
        EmptyDatasetError: the folder holds no Parquet file.
        CorruptFileError: the manifest, or a file of a folder without one, cannot be read.
    """
    uri, version = addressed(uri, version)
    location = Location.of(uri)
    known = versions(uri)
    if not known and version in (None, 0):
        return _open_foreign(location, uri)
    wanted = known[-1] if version is None and known else version
    if wanted not in known:
        raise VersionNotFoundError(f"Dataset {uri} has no version {version}; it has {known or 'none'}.")
    return open_version(location, wanted)


def open_committed(uri: str, version: int | None = None) -> Dataset:
    """One committed version of a dataset, the latest if none is named; files without a manifest are refused.

    Raises:
        SchemaError: there are files, but they were never imported; the message has the command that does it.
        DatasetNotFoundError, VersionNotFoundError, CorruptFileError: as `open_dataset`.
    """
    uri, version = addressed(uri, version)
    location = Location.of(uri)
    if not is_dataset(uri) and ("*" in uri or location.is_file() or location.files()):
        raise _other_kind(uri) or not_imported(uri)
    return open_dataset(uri, version)


def open_version(location: Location, version: int) -> Dataset:
    """A committed version.

    Raises:
        CorruptFileError: its manifest cannot be read, is damaged, or was written by a newer version of this package.
        LocationError: it, or a file that it names, is outside the dataset.
    """
    manifest_file = location.inside(f"{VERSIONS}/{version:06d}.json")
    stored = manifest_file.read()
    data = without_checksum(stored, manifest_file.uri)
    try:
        with collection_paused():  # a manifest of many files is a million objects, none of them garbage
            manifest = Manifest.model_validate_json(data, extra="ignore")  # down to models that forbid them
    except ValidationError as error:
        reason = reason_of(error, "manifest_version", READS)
        raise CorruptFileError(
            f"Manifest {version:06d}.json of {location.uri} cannot be read: {reason}. Open an older version."
        ) from error
    if data is stored and manifest.manifest_version != 1:  # which no version of this package wrote
        without_checksum(stored, manifest_file.uri, is_required=True)
    _check_files(manifest, manifest_file.uri)
    location.check_names(file.path for file in manifest.all_files)
    return Dataset(location, manifest)


def _check_files(manifest: Manifest, uri: str) -> None:
    """Raises a CorruptFileError if a manifest contradicts itself: no program of this package wrote it so."""
    paths: set[str] = set()
    for file in manifest.all_files:
        problem = "it is listed twice" if file.path in paths else file.problem
        if problem is not None:
            raise CorruptFileError(f"Manifest {uri} is wrong about {file.path}: {problem}. Open an older version.", uri=uri)
        paths.add(file.path)


def _other_kind(uri: str) -> DatasetNotFoundError | None:
    """The error for a folder that is known to be something else."""
    told = not_a_dataset(uri)
    return None if told is None else DatasetNotFoundError(told, uri=uri)


def _open_foreign(location: Location, uri: str) -> Dataset:
    if not location.is_folder():
        location.check_bucket()
        raise DatasetNotFoundError(
            f"There is no dataset at {location.uri}. Check the path, record one with 'offline record', or import one with "
            "'offline import'."
        )
    if location.child(VERSIONS).is_folder():
        raise DatasetNotFoundError(
            f"No version of {location.uri} was committed: what writes it is not done, or has failed. Run it (again)."
        )
    if (error := _other_kind(uri)) is not None:
        raise error

    @functools.cache
    def is_another_dataset(folder: str) -> bool:
        """Whether this folder or one above it is a dataset of its own."""
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
    files: list[FileEntry] = []
    for name in names:
        metadata = read_footer(location.child(name))
        schemas[name] = metadata.schema.to_arrow_schema()
        size, sha256 = size_and_hash(location.child(name))
        files.append(FileEntry(path=name, rows=metadata.num_rows, episodes=0, steps=0, bytes=size, sha256=sha256))
    first_of = {codec_of(schema).name: name for name, schema in reversed(schemas.items())}
    if len(first_of) > 1:
        raise SchemaError(
            f"{location.uri} mixes episode files ({first_of['episodes']}, …) with table files ({first_of['table']}, …); "
            "keep each kind in a folder of its own."
        )
    observation_space, action_space = spaces_of(next(iter(schemas.values())))
    manifest = Manifest(
        version=0,
        format=next(iter(first_of)),
        operation=Operation(name="foreign"),
        observation_space=None if observation_space is None else space_to_json(observation_space),
        action_space=None if action_space is None else space_to_json(action_space),
        statistics=Statistics(),
        files=files,
    )
    return Dataset(location, manifest)


def file_hash(uri: str) -> str | None:
    """SHA-256 of a file; None if it is not there."""
    file = Location.of(uri)
    return size_and_hash(file)[1] if file.is_file() else None


def size_and_hash(location: Location) -> tuple[int, str]:
    """(bytes, SHA-256) of a file."""
    size, sha256 = 0, hashlib.sha256()
    with storage_errors("read", location.uri), location.filesystem.open_input_stream(location.path) as stream:
        while data := stream.read(8 * 2**20):  # each is a request in an object store
            sha256.update(data)
            size += len(data)
    return size, sha256.hexdigest()
