"""Rows that only a prelearner of the user's own understands, as what a run learns from."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from offline_core.config import EnvironmentSpec
from offline_core.errors import ConfigError, DatasetNotFoundError, LocationError
from offline_core.learning.config import DataConfig
from offline_core.learning.kept_rows import KeptRows
from offline_core.learning.mapping import Mapping, Pool
from offline_core.learning.origin import Origin, place_of
from offline_core.prelearner.mapper import spaces_made
from offline_core.prelearner.pipeline import Pipeline
from offline_core.storage.location import Location
from offline_core.storage.reading import ray_errors
from offline_core.storage.sources.listing import WILDCARDS
from offline_core.storage.sources.located import FILESYSTEM
from offline_core.storage.sources.opening import SourceConfig, open_source
from offline_core.storage.sources.ray_reads import RayRead
from offline_core.storage.sources.step_reader import StepReader, Unreadable

if TYPE_CHECKING:
    from offline_core.learning.feed import Part


@dataclass(frozen=True, slots=True)
class RawRows:
    """Read as the files lie, whatever the epoch: what is shuffled of a stream is what its window holds."""

    readers: tuple[StepReader, ...]
    config: DataConfig
    pipeline: Pipeline
    origin: Origin

    @classmethod
    def of(cls, uri: str, config: DataConfig) -> RawRows:
        """What lies at `uri`.

        Raises:
            ConfigError: no prelearner of one's own is named, or it does not say what the spaces are.
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
        return cls(readers, config, pipeline, Origin.of_readers(uri, readers))

    @property
    def is_own(self) -> bool:
        return True

    @property
    def environment(self) -> EnvironmentSpec | None:
        return None

    def parts(
        self,
        wanted: Sequence[str],
        *,
        looks_ahead: bool,
        pool: Pool | None,
        order: np.random.Generator | None,
        rows: KeptRows | None,
    ) -> Iterator[Part]:
        where = self.origin.ref.uri
        mapping = Mapping(self.config, "rows", tuple(wanted), self.pipeline, looks_ahead=looks_ahead, where=where)
        if pool is not None:
            return mapping.pooled(self._ray_rows() if rows is None else rows.dataset(self._ray_rows), pool)
        return map(mapping.mapper(), self._tables() if rows is None else rows.tables(self._tables))

    def _tables(self) -> Iterator[pa.Table]:
        return (table for reader in self.readers for table in tables(reader))

    def _ray_rows(self) -> Any:
        import ray.data

        match self.readers:
            case (RayRead() as read,):
                return read.dataset()
        readers = list(self.readers)

        def read_rows(numbers: dict[str, np.ndarray]) -> Iterator[pa.Table]:
            for number in numbers["id"]:
                yield from tables(readers[number])

        numbered = ray.data.range(len(readers), override_num_blocks=len(readers))
        return numbered.map_batches(read_rows, batch_size=None, batch_format="numpy", num_cpus=1)

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
