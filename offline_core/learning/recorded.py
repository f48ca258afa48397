"""A dataset of ours, as what a run learns from."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from offline_core.config import EnvironmentSpec
from offline_core.errors import ConfigError
from offline_core.learning.config import DataConfig
from offline_core.learning.kept_rows import KeptRows
from offline_core.learning.mapping import Mapping, Pool
from offline_core.learning.origin import Origin
from offline_core.prelearner.mapper import spaces_made
from offline_core.prelearner.pipeline import Pipeline
from offline_core.storage.dataset import Dataset
from offline_core.storage.pieces import Piece, pieces, tables_of
from offline_core.storage.reader import schema_of, spaces_of
from offline_core.storage.reading import reading

if TYPE_CHECKING:
    from offline_core.learning.feed import Part


@dataclass(frozen=True, slots=True)
class Recorded:
    """Read by row groups of whole episodes; in another order, if asked for, of row groups."""

    dataset: Dataset
    config: DataConfig
    pipeline: Pipeline

    @classmethod
    def of(cls, dataset: Dataset, config: DataConfig = DataConfig()) -> Recorded:
        """With the connectors and the prelearner of `config`.

        Raises:
            ConfigError: the dataset does not say what its spaces are, or a connector cannot be made.
        """
        uri = dataset.location.uri
        spaces = spaces_made(config.prelearner, dataset.manifest.format, spaces_of(dataset), where=uri)
        if spaces is None:
            raise ConfigError(f"{uri} does not say which spaces its observations and actions are from.")
        return cls(dataset, config, Pipeline.of(config.connectors, spaces))

    @property
    def origin(self) -> Origin:
        return Origin.of(self.dataset)

    @property
    def is_own(self) -> bool:
        return bool(self.config.connectors) or self.config.prelearner is not None

    @property
    def environment(self) -> EnvironmentSpec | None:
        return self.dataset.manifest.environment if self.pipeline.spaces == spaces_of(self.dataset) else None

    def parts(
        self,
        wanted: Sequence[str],
        *,
        looks_ahead: bool,
        pool: Pool | None,
        order: np.random.Generator | None,
        rows: KeptRows | None,
    ) -> Iterator[Part]:
        uri, format = self.dataset.location.uri, self.dataset.manifest.format
        mapping = Mapping(self.config, format, tuple(wanted), self.pipeline, looks_ahead=looks_ahead, where=uri)
        names = mapping.stored_columns(schema_of(self.dataset).names)
        found = pieces(self.dataset, names)
        numbers = range(len(found)) if order is None else order.permutation(len(found)).tolist()
        together = self.config.row_groups_per_read
        if pool is not None:
            return mapping.pooled(self._ray_rows(found, names, numbers, rows), pool)
        if rows is not None:
            tables = rows.tables(partial(tables_of, found, names, together=1), order=numbers, together=together)
        else:
            tables = tables_of([found[number] for number in numbers], names, together=together, timed=True)
        return map(mapping.mapper(), tables)

    def _ray_rows(self, found: Sequence[Piece], names: Sequence[str], numbers: Sequence[int], rows: KeptRows | None) -> Any:
        from offline_core.storage.ray_reader import ray_pieces

        if rows is not None:
            return rows.dataset(partial(ray_pieces, found, names), order=numbers)
        in_order = [found[number] for number in numbers]
        return ray_pieces(in_order, names, pieces_per_read=self.config.row_groups_per_read, timed=True)

    def reading(self) -> contextlib.AbstractContextManager[None]:
        return reading(self.dataset)
