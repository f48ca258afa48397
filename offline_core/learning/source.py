"""Where training columns come from: a dataset, rows for a user's prelearner, or a user's data class."""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import psutil
import pyarrow as pa

from offline_core.data.datasets.dataset import Dataset, DatasetRef
from offline_core.data.datasets.manifest import Parent, digest
from offline_core.data.datasets.row_group import prefetch_tables, read_with_ray
from offline_core.data.environments.vector_env import Spaces
from offline_core.data.episodes import EpisodeBatch, columns
from offline_core.data.episodes.columns import ROW_GROUP
from offline_core.data.episodes.nested import PATH_SEPARATOR
from offline_core.data.episodes.spaces import space_leaves
from offline_core.data.formats.sources.fingerprint import FileFacts, changes_show, facts, files_of, fingerprint
from offline_core.data.formats.sources.listing import WILDCARDS, Listing
from offline_core.data.formats.sources.locations import FILESYSTEM
from offline_core.data.formats.sources.opening import SourceConfig, open_source
from offline_core.data.formats.sources.ray_reads import RayRead, in_order
from offline_core.data.formats.sources.step_reader import StepReader, Unreadable
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.data.store.location import Location, refuse_credentials
from offline_core.errors import (
    ConfigError,
    DatasetNotFoundError,
    EmptyDatasetError,
    LocationError,
    SchemaError,
    within,
)
from offline_core.learning.config import DataConfig
from offline_core.learning.pool import PrelearnerPool
from offline_core.learning.prelearner.connectors import Pipeline, a_pair, check_batch
from offline_core.learning.prelearner.mapper import SECONDS, Mapper
from offline_core.learning.prelearner.prelearner import Rows, spaces_made
from offline_core.runtime.config import EnvironmentSpec
from offline_core.runtime.engine import ray_errors
from offline_core.runtime.progress import progress
from offline_core.runtime.units import size_text
from offline_core.runtime.user_code import user_errors

log = logging.getLogger(__name__)

OTHER_BYTES = 40
"""Bytes of a step besides its observation and action: reward, end, row numbers, and what an algorithm adds."""
COPIES_WHILE_JOINING = 2
"""Batches and the whole are both in memory for a moment."""

Read = Callable[[Sequence[int] | None], Iterable[Any]]
"""Numbers of row groups, None: all → what is read of them, one by one, in this order."""
ReadThrough = Callable[[Sequence[int] | None, Read], Iterator[Any]]
"""(numbers of row groups, how they are read) → what is read of them, from a cache, say."""


class ColumnNeeds(Protocol):
    """Which columns are read, and what batches hold of them: what an `Algorithm` says of itself, see there."""

    @property
    def stored(self) -> tuple[str, ...]: ...
    @property
    def batch_columns(self) -> tuple[str, ...]: ...
    @property
    def needs_next_obs(self) -> bool: ...


class DataSource(NamedTuple):
    """What is known of the data before anything is read."""

    ref: DatasetRef
    """Its name and size. Version 0, no episodes and no steps if it has no manifest: they were not counted."""
    parent: Parent
    """It, as what a policy is made from."""
    changes_show: bool
    """The fingerprint changes with what is there: it is a dataset, or files that say when they were changed."""

    @classmethod
    def of_files(cls, uri: str, files: Sequence[FileFacts], fingerprint: str, *, changes_show: bool) -> DataSource:
        """Make the source of files without a manifest, as they are now."""
        size = sum(size for _, size, _ in files)
        ref = DatasetRef(uri=uri, version=0, fingerprint=fingerprint, episodes=0, steps=0, bytes=size)
        return cls(ref, Parent(kind="files", uri=uri, fingerprint=fingerprint), changes_show)


@dataclass(frozen=True, slots=True)
class StepSource:
    """The base of all sources; small, and sent to every learner."""

    config: DataConfig
    pipeline: Pipeline
    """What all columns go through; its spaces are those that a policy learns."""
    origin: DataSource
    environment: EnvironmentSpec | None = None
    """Where it was recorded, if known, and if a policy there sees what it learned from."""
    input_columns: InputColumns | None = None
    """The raw columns that observations are made of, if known, and if a policy sees observations so."""
    is_own: bool = True
    """User code decides which steps come out; `origin` does not say how many."""
    format: Rows = "rows"
    """What a stored row is."""

    @property
    def row_groups(self) -> int:
        """How many it is read by, each alone and in any order; then batches have the column `ROW_GROUP`. 0: it has none."""
        return 0

    def reading(self) -> contextlib.AbstractContextManager[None]:
        """Around whatever reads it: turns errors of libraries into `OfflineError`s."""
        return ray_errors()

    def training_columns(
        self,
        algorithm: ColumnNeeds,
        numbers: Sequence[int] | None = None,
        *,
        pool: PrelearnerPool | None = None,
        through: ReadThrough | None = None,
    ) -> Iterator[EpisodeBatch]:
        """Return whole episodes with the flat columns that the algorithm needs; the same each time.

        Arguments:
            numbers: of the row groups to read, in this order; None: all.
            pool: of actors that map rows; None: this process does.
            through: reads the tables, or for a pool the references to Ray's blocks; None: they are read from the files.

        Raises:
            SchemaError: A column is missing that neither the source has nor a connector makes.
        """
        pipeline, stored, uri = self.pipeline, set(algorithm.stored), self.origin.ref.uri
        wanted = (*(name for name in algorithm.stored if name not in pipeline.adds), *sorted(pipeline.reads - stored))
        # `new_obs` of a batch is looked up some rows later; as a column it would stand in the way of that.
        needed = stored | (set(algorithm.batch_columns) - {columns.NEW_OBS})
        needs_next_obs = algorithm.needs_next_obs or pipeline.needs_next_obs
        mapper = Mapper(self.config.prelearner, self.format, wanted, needs_next_obs, uri, pipeline)
        return (_needed(batch, stored, needed, uri) for batch in self._episodes(mapper, numbers, pool, through))

    def _episodes(
        self, mapper: Mapper, numbers: Sequence[int] | None, pool: PrelearnerPool | None, through: ReadThrough | None
    ) -> Iterator[EpisodeBatch]:
        """All episodes once, with the columns that the mapper wants, after the connectors."""
        if pool is None:
            if through is None:
                return map(mapper.timed, self._tables(mapper, numbers, singly=False))
            return map(mapper.timed, through(numbers, lambda missing: self._tables(mapper, missing, singly=True)))
        if through is None:
            return pool.map(mapper, self._ray_rows(mapper, numbers, pool.read_cpus, singly=False))
        import ray.data

        def blocks(missing: Sequence[int] | None) -> list[Any]:
            rows = self._ray_rows(mapper, missing, pool.read_cpus, singly=True)
            rows.context.execution_options.preserve_order = True
            return rows.materialize().to_arrow_refs()  # type: ignore[no-any-return]

        return pool.map(mapper, ray.data.from_arrow_refs(list(through(numbers, blocks))))

    def _tables(self, mapper: Mapper, numbers: Sequence[int] | None, *, singly: bool) -> Iterator[pa.Table]:
        """Return the rows that the mapper takes; `singly`: row groups one by one, and not timed."""
        raise NotImplementedError

    def _ray_rows(self, mapper: Mapper, numbers: Sequence[int] | None, num_cpus: float, *, singly: bool) -> Any:
        """Return the rows of `_tables` as a `ray.data.Dataset`."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded(StepSource):
    """A dataset, read by row groups of whole episodes, in their order or in a drawn one."""

    dataset: Dataset

    @classmethod
    def of(cls, dataset: Dataset, config: DataConfig = DataConfig()) -> Recorded:
        """Return it with the connectors and the prelearner of `config`.

        Raises:
            ConfigError: The dataset does not say what its spaces are, or a connector cannot be made.
        """
        uri, manifest = dataset.location.uri, dataset.manifest
        stored = mapped = dataset.spaces
        if config.prelearner is not None:
            mapped = spaces_made(config.prelearner, manifest.format, stored, where=uri) or (None, None)
        observations, actions = mapped
        if observations is None or actions is None:
            raise ConfigError(f"{uri} does not say which spaces its observations and actions are from.")
        pipeline = Pipeline.of(config.connectors, (observations, actions))
        is_own = bool(config.connectors) or config.prelearner is not None
        return cls(
            config,
            pipeline,
            DataSource(dataset.ref, dataset.parent_entry, changes_show=True),
            environment=manifest.environment if pipeline.spaces == stored else None,
            input_columns=None if is_own else manifest.input_columns,
            is_own=is_own,
            format=manifest.format,
            dataset=dataset,
        )

    @property
    def row_groups(self) -> int:
        listed = [entry.group_rows for entry in self.dataset.manifest.files]
        return sum(1 for _ in self.dataset.row_groups()) if None in listed else sum(len(rows or ()) for rows in listed)

    def reading(self) -> contextlib.AbstractContextManager[None]:
        return self.dataset.reading()

    def _tables(self, mapper: Mapper, numbers: Sequence[int] | None, *, singly: bool) -> Iterator[pa.Table]:
        return self._read(prefetch_tables, mapper, numbers, singly)  # type: ignore[no-any-return]

    def _ray_rows(self, mapper: Mapper, numbers: Sequence[int] | None, num_cpus: float, *, singly: bool) -> Any:
        return self._read(partial(read_with_ray, num_cpus=num_cpus), mapper, numbers, singly)

    def _read(self, read: Callable[..., Any], mapper: Mapper, numbers: Sequence[int] | None, singly: bool) -> Any:
        stored = mapper.stored_columns()
        names = self.dataset.schema.names if stored is None else list(stored)
        if numbers is None:
            groups = list(self.dataset.row_groups(names))
        else:
            only = frozenset(numbers)
            by_number = {group.number_in_dataset: group for group in self.dataset.row_groups(names, only=only)}
            groups = [by_number[number] for number in numbers]
        return read(groups, names, together=1 if singly else self.config.row_groups_per_read, timed=not singly, numbered=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRows(StepSource):
    """Rows that only a user's prelearner understands, in the order of their files in every epoch.

    Streaming shuffles them only within its window.
    """

    readers: tuple[StepReader, ...]

    @classmethod
    def of(cls, uri: str, config: DataConfig) -> RawRows:
        """Return the rows at `uri`.

        Raises:
            ConfigError: No user's prelearner is named, or it does not declare the spaces.
            DatasetNotFoundError: There is nothing.
        """
        assert config.source is not None
        if config.prelearner is None:
            raise ConfigError("Our prelearner cannot know what the rows of data.source mean: name yours by data.prelearner.")
        if config.source.format == "auto":
            raise ConfigError("Name the format of the rows by data.source.format: read_text, say.")
        if _is_path(uri, config.source):
            uri = _absolute(uri)
            if _is_empty(uri):
                raise DatasetNotFoundError(f"There is nothing at {uri}. Check the path.")
        readers = tuple(open_source([uri], config.source))
        spaces = spaces_made(config.prelearner, "rows", (None, None), where=uri)
        if spaces is None:
            raise ConfigError(f"The prelearner {config.prelearner} has to say what the spaces are: spaces() gives None.")
        pipeline, listing = Pipeline.of(config.connectors, spaces), Listing()
        files = [file for reader in readers for file in files_of(reader, listing)]
        origin = DataSource.of_files(uri, files, fingerprint(readers, listing), changes_show=changes_show(readers, listing))
        return cls(config, pipeline, origin, readers=readers)

    def _tables(self, mapper: Mapper, numbers: Sequence[int] | None, *, singly: bool) -> Iterator[pa.Table]:
        return itertools.chain.from_iterable(map(_tables_of, self.readers))

    def _ray_rows(self, mapper: Mapper, numbers: Sequence[int] | None, num_cpus: float, *, singly: bool) -> Any:
        import ray.data

        match self.readers:
            case (RayRead() as read,):
                return read.dataset()
        readers = list(self.readers)

        def read_rows(reader_numbers: dict[str, np.ndarray]) -> Iterator[pa.Table]:
            for number in reader_numbers["id"]:
                yield from _tables_of(readers[number])

        numbered = ray.data.from_arrow([pa.table({"id": [number]}) for number in range(len(readers))])
        return numbered.map_batches(read_rows, batch_size=None, batch_format="numpy", num_cpus=num_cpus)


class TrainingData(Protocol):
    """A data class: made with the location and its arguments, it returns episode batches. It may use Ray Data, which is up.

    If it has an attribute `environment`, an `EnvironmentSpec`, the policy is played there while it trains.
    """

    def spaces(self) -> Spaces:
        """(observation space, action space) of its steps."""

    def batches(self, wanted: Sequence[str], *, needs_next_obs: bool) -> Iterator[EpisodeBatch]:
        """All whole episodes, such as `EpisodeBatch.from_steps` makes them; the same each time it is called.

        Connectors and checks run on them.

        Arguments:
            wanted: names of the columns that are needed; others may be there.
            needs_next_obs: the batches need `has_last`, a row for the observation after each episode's last step.
        """


@dataclass(frozen=True, slots=True)
class UserData(StepSource):
    """A user's data class, made anew in each process that reads; streaming keeps the order of its batches."""

    @classmethod
    def of(cls, uri: str, config: DataConfig) -> UserData:
        """Return the data at `uri`. Needs Ray.

        Raises:
            ConfigError: The class cannot be made, or parameters do not go with it.
            LocationError: There are credentials in the URI.
        """
        name = f"data class {config.data_class}"
        if config.source is not None or config.prelearner is not None:
            raise ConfigError(f"{config.data_class} reads and maps by itself: set data.source and data.prelearner to None.")
        uri = _absolute(uri)
        data = _user_data(config, uri)
        with user_errors(name, "to say its spaces", ConfigError):
            spaces = a_pair(data.spaces(), name)
        pipeline = Pipeline.of(config.connectors, spaces)
        environment = getattr(data, "environment", None)
        if not isinstance(environment, EnvironmentSpec | None):
            raise ConfigError(f"The environment of the {name} has to be an EnvironmentSpec, and not {environment!r}.")
        files = facts(uri, Listing())
        times_known = bool(files) and all(changed is not None for _, _, changed in files)
        origin = DataSource.of_files(uri, files, digest([uri, files]), changes_show=times_known)
        return cls(config, pipeline, origin, environment if pipeline.spaces == spaces else None)

    def _episodes(
        self, mapper: Mapper, numbers: Sequence[int] | None, pool: PrelearnerPool | None, through: ReadThrough | None
    ) -> Iterator[EpisodeBatch]:
        uri, name, has_last = self.origin.ref.uri, f"data class {self.config.data_class}", mapper.needs_next_obs
        end: Any = object()
        with in_order():
            with user_errors(name, f"on {uri}"):
                batches = iter(_user_data(self.config, uri).batches(mapper.wanted, needs_next_obs=has_last))
            while True:
                with user_errors(name, f"on {uri}"):
                    batch = next(batches, end)
                if batch is end:
                    return
                with within(f"{uri}, by the {name}"):
                    batch = self.pipeline(check_batch(batch, has_last=has_last).read_only())
                yield batch


def count(source: StepSource, algorithm: ColumnNeeds) -> tuple[int, int]:
    """Read all of a source once, and return the numbers of episodes and of steps that come out.

    Raises:
        EmptyDatasetError: It holds no steps.
        DataError: It cannot be read.
    """
    episodes = steps = 0
    with source.reading(), progress(source.origin.ref.steps or None, what="count", unit="step") as bar:
        for batch in source.training_columns(algorithm):
            episodes += batch.num_episodes
            steps += len(batch)
            bar.to(steps)
    if not steps:
        raise EmptyDatasetError(f"{source.origin.ref.uri} holds no steps to learn from.")
    return episodes, steps


def resident_bytes(source: StepSource, steps: int) -> int:
    """Return what so many steps take in memory, while they are joined."""
    leaves = [leaf for space in source.pipeline.spaces for leaf in space_leaves(space, columns.OBS).values()]
    step_bytes = sum(math.prod(leaf.shape or ()) * np.dtype(leaf.dtype).itemsize for leaf in leaves)
    return steps * (step_bytes + OTHER_BYTES) * COPIES_WHILE_JOINING


def is_streamed(source: StepSource, steps: int, config: DataConfig) -> bool:
    """Return whether so many steps are too large to stay in memory, or go through a buffer."""
    if config.buffer is not None or config.resident_bytes == "rows":
        return True
    return resident_bytes(source, steps) > config.resident_bytes


def log_memory(source: StepSource, steps: int, config: DataConfig) -> None:
    """Log whether so many steps stay in memory, and why."""
    uri, allowed = source.origin.ref.uri, config.resident_bytes
    if config.buffer is not None:
        log.info("%s goes through a buffer of %s steps", uri, f"{config.buffer.capacity_steps:,}")
        return
    if allowed == "rows":
        log.info("%s is streamed, and what is stored stays in memory (data.resident_bytes)", uri)
        return
    needed = resident_bytes(source, steps)
    sizes = f"it takes about {size_text(needed)}, {size_text(allowed)} are allowed (data.resident_bytes)"
    if needed > allowed:
        log.info("%s is streamed, %s steps at a time: %s", uri, f"{config.window_steps:,}", sizes)
        return
    log.info("%s stays in memory: %s", uri, sizes)
    if needed > (free := psutil.virtual_memory().available):
        log.warning("%s are free: set data.resident_bytes to 0, which streams, if they do not suffice.", size_text(free))


def _needed(batch: EpisodeBatch, stored: Collection[str], needed: Collection[str], where: str) -> EpisodeBatch:
    names = {path: path.partition(PATH_SEPARATOR)[0] for path in batch.columns}
    if batch.rows and (missing := set(stored) - set(names.values())):
        raise SchemaError(
            f"{where}: the column {', '.join(sorted(missing))} is missing from what the prelearner and its connectors made."
        )
    also = (*SECONDS, ROW_GROUP)
    return replace(batch, columns={path: batch[path] for path in names if names[path] in needed or path in also})


def _absolute(uri: str) -> str:
    """Return a URI that is the same wherever it is read: what has no scheme is a local path.

    Raises:
        LocationError: There are credentials in it.
    """
    refuse_credentials(uri)
    try:
        return Location.of(uri).uri
    except LocationError:  # a location that only user code understands
        return uri


def _is_path(uri: str, source: SourceConfig) -> bool:
    """Return whether it is not within a filesystem object, a query, or the name of a table."""
    return FILESYSTEM not in source.arguments and (not source.is_rays or RayRead(str(source.format), (uri,)).reads_files)


def _is_empty(uri: str) -> bool:
    """Return whether there is certainly neither a file nor a folder, nor what a pattern matches."""
    try:
        location = Location.of(uri)
    except LocationError:  # user code may know it
        return False
    return not (WILDCARDS & set(uri) or location.is_file() or location.is_folder())


def _tables_of(reader: StepReader) -> Iterator[pa.Table]:
    """Return what it reads.

    Raises:
        DataError: Some of it cannot be read.
    """
    for batch in reader.batches():
        if isinstance(batch, Unreadable):
            raise type(batch.error)(str(batch)) from batch.error
        yield batch


def _user_data(config: DataConfig, uri: str) -> Any:
    assert config.data_class is not None
    data = config.data_class.make("data class", uri)
    if not (hasattr(data, "spaces") and hasattr(data, "batches")):
        raise ConfigError(f"The data class {config.data_class} has to have spaces() and batches(); see docs/customising.md.")
    return data
