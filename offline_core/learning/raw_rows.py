"""Rows that only a user's prelearner understands, as a source of training columns."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from offline_core.data.datasets.read_errors import ray_errors
from offline_core.data.episodes import EpisodeBatch
from offline_core.data.formats.sources.listing import WILDCARDS
from offline_core.data.formats.sources.locations import FILESYSTEM
from offline_core.data.formats.sources.opening import SourceConfig, open_source
from offline_core.data.formats.sources.ray_reads import RayRead
from offline_core.data.formats.sources.step_reader import StepReader, Unreadable
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError, DatasetNotFoundError, LocationError
from offline_core.learning.config import DataConfig
from offline_core.learning.data_source import DataSource, place_of
from offline_core.learning.mapping import Mapping
from offline_core.learning.prelearner.mapper import spaces_made
from offline_core.learning.prelearner.pipeline import Pipeline
from offline_core.learning.source import ReadSpec
from offline_core.runtime.config import EnvironmentSpec


@dataclass(frozen=True, slots=True)
class RawRows:
    """Read in the order of the files in every epoch: streaming shuffles only within its window."""

    readers: tuple[StepReader, ...]
    config: DataConfig
    pipeline: Pipeline
    origin: DataSource

    @classmethod
    def of(cls, uri: str, config: DataConfig) -> RawRows:
        """The rows at `uri`.

        Raises:
            ConfigError: no user's prelearner is named, or it does not declare the spaces.
            DatasetNotFoundError: there is nothing.
        """
        assert config.source is not None
        if config.prelearner is None:
            raise ConfigError("Our prelearner cannot know what the rows of data.source mean: name yours by data.prelearner.")
        if config.source.format == "auto":
            raise ConfigError("Name the format of the rows by data.source.format: read_text, say.")
        if _is_path(uri, config.source):
            uri = place_of(uri)
            if _is_empty(uri):
                raise DatasetNotFoundError(f"There is nothing at {uri}. Check the path.")
        readers = tuple(open_source([uri], config.source))
        spaces = spaces_made(config.prelearner, "rows", (None, None), where=uri)
        if spaces is None:
            raise ConfigError(f"The prelearner {config.prelearner} has to say what the spaces are: spaces() gives None.")
        pipeline = Pipeline.of(config.connectors, spaces)
        return cls(readers, config, pipeline, DataSource.of_readers(uri, readers))

    @property
    def is_own(self) -> bool:
        return True

    @property
    def environment(self) -> EnvironmentSpec | None:
        return None

    @property
    def input_columns(self) -> InputColumns | None:
        return None

    def batches(self, spec: ReadSpec) -> Iterator[EpisodeBatch]:
        where = self.origin.ref.uri
        mapping = Mapping(self.config, "rows", spec.wanted, self.pipeline, needs_next_obs=spec.needs_next_obs, where=where)
        if spec.pool is not None:
            rows = partial(self._ray_rows, num_cpus=spec.pool.read_cpus)
            return mapping.pooled(rows() if spec.rows is None else spec.rows.dataset(lambda _: rows()), spec.pool)
        return map(mapping.mapper(), self._tables() if spec.rows is None else spec.rows.tables(lambda _: self._tables()))

    @property
    def row_groups(self) -> int:
        return 0

    def _tables(self) -> Iterator[pa.Table]:
        return (table for reader in self.readers for table in tables(reader))

    def _ray_rows(self, num_cpus: float) -> Any:
        import ray.data

        match self.readers:
            case (RayRead() as read,):
                return read.dataset()
        readers = list(self.readers)

        def read_rows(numbers: dict[str, np.ndarray]) -> Iterator[pa.Table]:
            for number in numbers["id"]:
                yield from tables(readers[number])

        numbered = ray.data.from_arrow([pa.table({"id": [number]}) for number in range(len(readers))])
        return numbered.map_batches(read_rows, batch_size=None, batch_format="numpy", num_cpus=num_cpus)

    def reading(self) -> contextlib.AbstractContextManager[None]:
        return ray_errors()


def tables(reader: StepReader) -> Iterator[pa.Table]:
    """What it reads.

    Raises:
        DataError: some of it cannot be read.
    """
    for batch in reader.batches():
        if isinstance(batch, Unreadable):
            raise type(batch.error)(str(batch)) from batch.error
        yield batch


def _is_path(uri: str, source: SourceConfig) -> bool:
    """And not a place in a filesystem object, a query or the name of a table."""
    return FILESYSTEM not in source.arguments and (not source.is_rays or RayRead(str(source.format), (uri,)).reads_files)


def _is_empty(uri: str) -> bool:
    """We can say of a place that there is neither a file nor a folder, nor what a pattern matches."""
    try:
        place = Location.of(uri)
    except LocationError:  # others than we may know it
        return False
    return not (WILDCARDS & set(uri) or place.is_file() or place.is_folder())
