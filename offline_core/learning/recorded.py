"""A dataset as a source of training columns."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from offline_core.data.datasets.dataset import Dataset
from offline_core.data.datasets.read_errors import reading
from offline_core.data.datasets.reader import spaces_of
from offline_core.data.datasets.row_groups import RowGroup, prefetch_tables, read_with_ray, row_groups, schema_of
from offline_core.data.episodes import EpisodeBatch
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.errors import ConfigError
from offline_core.learning.config import DataConfig
from offline_core.learning.data_source import DataSource
from offline_core.learning.mapping import Mapping
from offline_core.learning.prelearner.mapper import spaces_made
from offline_core.learning.prelearner.pipeline import Pipeline
from offline_core.learning.source import ReadSpec
from offline_core.runtime.config import EnvironmentSpec


@dataclass(frozen=True, slots=True)
class Recorded:
    """Read by row groups of whole episodes, in their order or in a drawn one."""

    dataset: Dataset
    config: DataConfig
    pipeline: Pipeline

    @classmethod
    def of(cls, dataset: Dataset, config: DataConfig = DataConfig()) -> Recorded:
        """With the connectors and the prelearner of `config`.

        Raises:
            ConfigError: the dataset does not say what its spaces are, or a connector cannot be made.
        """
        uri, stored = dataset.location.uri, spaces_of(dataset)
        if config.prelearner is not None:
            stored = spaces_made(config.prelearner, dataset.manifest.format, stored, where=uri) or (None, None)
        observations, actions = stored
        if observations is None or actions is None:
            raise ConfigError(f"{uri} does not say which spaces its observations and actions are from.")
        return cls(dataset, config, Pipeline.of(config.connectors, (observations, actions)))

    @property
    def origin(self) -> DataSource:
        return DataSource.of(self.dataset)

    @property
    def is_own(self) -> bool:
        return bool(self.config.connectors) or self.config.prelearner is not None

    @property
    def environment(self) -> EnvironmentSpec | None:
        return self.dataset.manifest.environment if self.pipeline.spaces == spaces_of(self.dataset) else None

    @property
    def input_columns(self) -> InputColumns | None:
        return None if self.is_own else self.dataset.manifest.input_columns

    def batches(self, spec: ReadSpec) -> Iterator[EpisodeBatch]:
        uri, format = self.dataset.location.uri, self.dataset.manifest.format
        mapping = Mapping(self.config, format, spec.wanted, self.pipeline, needs_next_obs=spec.needs_next_obs, where=uri)
        names = mapping.stored_columns(schema_of(self.dataset).names)
        only = None if spec.numbers is None else frozenset(spec.numbers)
        found = {group.number_in_dataset: group for group in row_groups(self.dataset, names, only=only)}
        together = self.config.row_groups_per_read

        def groups(numbers: Sequence[int] | None) -> list[RowGroup]:
            return [found[number] for number in (found if numbers is None else numbers)]

        if spec.pool is not None:
            read = partial(read_with_ray, names=names, numbered=True, num_cpus=spec.pool.read_cpus)
            if spec.rows is None:
                return mapping.pooled(read(groups(spec.numbers), together=together, timed=True), spec.pool)
            rows = spec.rows.dataset(lambda numbers: read(groups(numbers)), numbers=spec.numbers)
            return mapping.pooled(rows, spec.pool)
        read = partial(prefetch_tables, names=names, numbered=True)
        if spec.rows is None:
            tables = read(groups(spec.numbers), together=together, timed=True)
        else:
            tables = spec.rows.tables(lambda numbers: read(groups(numbers)), numbers=spec.numbers, together=together)
        return map(mapping.mapper(), tables)

    @property
    def row_groups(self) -> int:
        listed = [entry.group_rows for entry in self.dataset.manifest.files]
        return sum(1 for _ in row_groups(self.dataset)) if None in listed else sum(len(rows or ()) for rows in listed)

    def reading(self) -> contextlib.AbstractContextManager[None]:
        return reading(self.dataset)
