"""Opens the data of a run: the data loaders of its learners, and columns that several runs share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from offline_core.data.episodes import EpisodeBatch
from offline_core.learning.algorithms.algorithm import Algorithm
from offline_core.learning.algorithms.networks import Networks
from offline_core.learning.config import DataConfig
from offline_core.learning.data_loader import (
    DataLoader,
    StreamingLoader,
    joined,
    read_into_memory,
    resident,
    without_seconds,
)
from offline_core.learning.mapping import prelearner_pool
from offline_core.learning.optimizer_config import OptimizerConfig
from offline_core.learning.replay.data_loader import ReplayLoader
from offline_core.learning.rows import CachedRows
from offline_core.learning.run import Run
from offline_core.learning.shards import ReadingOrder, Shards
from offline_core.learning.source import Source, scaled, training_columns


def make_data_loader(
    source: Source,
    config: DataConfig,
    algorithm: Networks | type[Algorithm],
    *,
    expected_steps: int | None = None,
    streamed: bool,
    seed: int,
    shards: Shards = Shards(),
    learners: int = 1,
    taken_cpus: float = 0.0,
    optimizer: OptimizerConfig = OptimizerConfig(),
) -> DataLoader:
    """The data loader of `source`; needs Ray if there are to be prelearners.

    Arguments:
        expected_steps: of all learners' shards.
        streamed: read the source anew each epoch; otherwise it stays in memory.
        seed: of the order in which a stream reads.
        shards: those to read; a replay buffer holds all.
        learners: that share the prelearners.
        taken_cpus: CPUs that Ray reserves for learners.
        optimizer: whose batches come out of a replay buffer, if there is one.
    """
    pool = prelearner_pool(config, taken_cpus, learners)
    uri, row_groups = source.origin.ref.uri, source.row_groups
    rows = CachedRows() if streamed and config.resident_bytes == "rows" else None

    def read(numbers: Sequence[int] | None) -> Iterator[EpisodeBatch]:
        return scaled(training_columns(source, algorithm, pool=pool, numbers=numbers, rows=rows), config.rewards)

    if not streamed:
        order = ReadingOrder.stored(row_groups) if row_groups else None
        return read_into_memory(read, order, shards, where=uri, expected_steps=expected_steps)

    def drawn(epoch: int) -> ReadingOrder | None:
        if not row_groups:
            return None
        steps = expected_steps or source.origin.ref.steps
        return ReadingOrder.drawn(seed, epoch, steps=steps, row_groups=row_groups, window_steps=config.window_steps)

    if config.buffer is None:
        return StreamingLoader(read, drawn, shards, where=uri, window_steps=config.window_steps, expected_steps=expected_steps)

    def batches(epoch: int) -> Iterator[EpisodeBatch]:
        order = drawn(epoch)
        return read(None if order is None else order.read_by(shards.whole))

    return ReplayLoader(batches, config.buffer, optimizer, where=uri, expected_steps=expected_steps)


def loader_of(run: Run, *, rank: int = 0, world: int = 1, loaded: EpisodeBatch | None = None) -> DataLoader:
    """Open the data that learner `rank` of `world` learns from.

    Arguments:
        loaded: what `loaded_columns` returned for it.

    Raises:
        ConfigError: There are more learners than shards.
    """
    shards = run.shards(rank, world)
    if loaded is None:
        return _loader(run, run.source, streamed=run.streamed, shards=shards)
    order = ReadingOrder.stored(run.source.row_groups) if run.source.row_groups else None
    return resident(next(scaled(iter([loaded]), run.config.data.rewards)), order, shards)


def loaded_columns(run: Run) -> EpisodeBatch:
    """Read all columns that the run learns from into memory, for all runs that need the same ones of the same data."""
    with run.source.reading():
        found = [without_seconds(batch)[0] for batch in training_columns(run.source, run.algorithm())]
    return joined(found, run.dataset.uri)


def held_out_loader_of(run: Run) -> DataLoader | None:
    """Open the held-out data, all in memory."""
    return None if run.held_out is None else _loader(run, run.held_out, streamed=False)


def _loader(run: Run, source: Source, *, streamed: bool, shards: Shards = Shards()) -> DataLoader:
    return make_data_loader(
        source,
        run.config.data,
        run.algorithm(),
        expected_steps=run.steps if source is run.source else None,
        streamed=streamed,
        seed=run.config.seed,
        shards=shards,
        learners=max(1, run.config.compute.processes),
        taken_cpus=run.config.compute.processes * run.config.compute.cpus_per_learner,
        optimizer=run.config.optimizer,
    )
