"""Where training columns come from: a dataset, rows for a user's prelearner, or a user's data class."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import psutil

from offline_core.data.datasets.row_groups import ROW_GROUP
from offline_core.data.episodes import EpisodeBatch, columns
from offline_core.data.episodes.nested import PATH_SEPARATOR
from offline_core.data.episodes.spaces import space_leaves
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.errors import EmptyDatasetError, SchemaError
from offline_core.learning.config import DataConfig, RewardsConfig
from offline_core.learning.data_source import DataSource
from offline_core.learning.mapping import Pool
from offline_core.learning.prelearner.mapper import SECONDS
from offline_core.learning.prelearner.pipeline import Pipeline, Spaces
from offline_core.learning.rows import RowReader
from offline_core.runtime.config import EnvironmentSpec
from offline_core.runtime.progress import progress
from offline_core.runtime.units import size_text

if TYPE_CHECKING:  # what a run reads is known without Torch
    from offline_core.learning.algorithms.algorithm import Algorithm
    from offline_core.learning.algorithms.networks import Networks

log = logging.getLogger(__name__)

BYTES_BESIDE = 40
"""A step's reward, end, row numbers, and what an algorithm adds, besides its observation and action."""
WHILE_JOINING = 2
"""Batches and the whole are both in memory for a moment."""


@dataclass(frozen=True, slots=True)
class ReadSpec:
    """What to read of a source, and how."""

    wanted: tuple[str, ...]
    """Columns to start from."""
    needs_next_obs: bool
    """With the observations after the last steps."""
    pool: Pool | None = None
    """Of actors that map rows; None: this process does."""
    numbers: Sequence[int] | None = None
    """Of the row groups to read, in this order; None: all."""
    rows: RowReader | None = None
    """Reads the rows; None: from the files."""


class Source(Protocol):
    """Where the steps come from; small, and sent to every learner."""

    @property
    def origin(self) -> DataSource:
        """The location, and what is known of it."""

    @property
    def is_own(self) -> bool:
        """User code decides which steps come out; `origin` does not say how many."""

    @property
    def environment(self) -> EnvironmentSpec | None:
        """Where it was recorded, if known, and if a policy there sees what it learned from."""

    @property
    def input_columns(self) -> InputColumns | None:
        """The raw columns that observations are made of, if known, and if a policy sees observations so."""

    @property
    def pipeline(self) -> Pipeline:
        """What all columns go through; its spaces are those that a policy learns."""

    @property
    def row_groups(self) -> int:
        """How many it is read by, each alone and in any order; then batches have the column `ROW_GROUP`. 0: it has none."""

    def batches(self, spec: ReadSpec) -> Iterator[EpisodeBatch]:
        """All of it once, in batches of whole episodes; the same each time."""

    def reading(self) -> contextlib.AbstractContextManager[None]:
        """Around whatever reads it: turns errors of libraries into `OfflineError`s."""


def training_columns(
    source: Source,
    algorithm: Networks | type[Algorithm],
    *,
    pool: Pool | None = None,
    numbers: Sequence[int] | None = None,
    rows: RowReader | None = None,
) -> Iterator[EpisodeBatch]:
    """All of a source once, with the columns that the algorithm needs; see `ReadSpec`.

    Raises:
        SchemaError: a column is missing that neither the source has nor a connector makes.
    """
    own = source.pipeline
    wanted = (*(name for name in algorithm.stored if name not in own.adds), *sorted(own.reads - set(algorithm.stored)))
    # `new_obs` of a batch is looked up some rows later; as a column it would stand in the way of that.
    needed = {*algorithm.stored, *algorithm.batch_columns} - ({columns.NEW_OBS} - set(algorithm.stored))
    spec = ReadSpec(wanted, algorithm.needs_next_obs or own.needs_next_obs, pool, numbers, rows)
    return (_needed(batch, algorithm.stored, needed, source.origin.ref.uri) for batch in source.batches(spec))


def scaled(batches: Iterator[EpisodeBatch], rewards: RewardsConfig) -> Iterator[EpisodeBatch]:
    """The same batches with rewards as they are learned; `rewards.scale` is a number."""
    if rewards == RewardsConfig():
        return batches
    return (
        batch | {columns.REWARDS: batch[columns.REWARDS] * rewards.scale + rewards.shift} if columns.REWARDS in batch else batch
        for batch in batches
    )


class Counts(NamedTuple):
    """What comes out of a source."""

    episodes: int
    steps: int


def count(source: Source, algorithm: Networks | type[Algorithm]) -> Counts:
    """Read all of a source once.

    Raises:
        EmptyDatasetError: it holds no steps.
        DataError: it cannot be read.
    """
    episodes = steps = 0
    with source.reading(), progress(source.origin.ref.steps or None, what="count", unit="step") as bar:
        for batch in training_columns(source, algorithm):
            episodes += batch.num_episodes
            steps += len(batch)
            bar.to(steps)
    if not steps:
        raise EmptyDatasetError(f"{source.origin.ref.uri} holds no steps to learn from.")
    return Counts(episodes, steps)


def resident_bytes(source: Source, steps: int) -> int:
    """What so many steps take in memory, while they are joined."""
    return steps * (bytes_per_step(source.pipeline.spaces) + BYTES_BESIDE) * WHILE_JOINING


def is_streamed(source: Source, steps: int, config: DataConfig) -> bool:
    """Whether so many steps are too large to stay in memory, or go through a buffer."""
    if config.buffer is not None or config.resident_bytes == "rows":
        return True
    return resident_bytes(source, steps) > config.resident_bytes


def log_memory(source: Source, steps: int, config: DataConfig) -> None:
    """Log whether so many steps stay in memory, and why."""
    ref = source.origin.ref
    if config.buffer is not None:
        log.info("%s goes through a buffer of %s steps", ref.uri, f"{config.buffer.capacity_steps:,}")
        return
    if config.resident_bytes == "rows":
        log.info("%s is streamed, and what is stored stays in memory (data.resident_bytes)", ref.uri)
        return
    needed = resident_bytes(source, steps)
    sizes = f"it takes about {size_text(needed)}, {size_text(config.resident_bytes)} are allowed (data.resident_bytes)"
    if needed > config.resident_bytes:
        log.info("%s is streamed, %s steps at a time: %s", ref.uri, f"{config.window_steps:,}", sizes)
        return
    log.info("%s stays in memory: %s", ref.uri, sizes)
    if needed > (free := psutil.virtual_memory().available):
        log.warning("%s are free: set data.resident_bytes to 0, which streams, if they do not suffice.", size_text(free))


def _needed(batch: EpisodeBatch, stored: Sequence[str], needed: Collection[str], where: str) -> EpisodeBatch:
    names = {path: path.partition(PATH_SEPARATOR)[0] for path in batch.columns}
    if batch.rows and (missing := set(stored) - set(names.values())):
        raise SchemaError(
            f"{where}: the column {', '.join(sorted(missing))} is missing from what the prelearner and its connectors made."
        )
    beside = (*SECONDS, ROW_GROUP)
    return replace(batch, columns={path: batch[path] for path in names if names[path] in needed or path in beside})


def bytes_per_step(spaces: Spaces) -> int:
    """What one observation and one action take in memory."""
    leaves = [leaf for space in spaces for leaf in space_leaves(space, columns.OBS).values()]
    return sum(math.prod(leaf.shape or ()) * np.dtype(leaf.dtype).itemsize for leaf in leaves)
