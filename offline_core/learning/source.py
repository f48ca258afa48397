"""What a run learns from, however it is read: a dataset of ours, rows of a kind of their own, or the user's own class."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import gymnasium as gym
import numpy as np
import psutil

from offline_core.config import EnvironmentSpec
from offline_core.episodes import columns
from offline_core.episodes.nested import PATH_SEPARATOR
from offline_core.errors import ConfigError, SchemaError
from offline_core.learning.config import DataConfig, OptimizerConfig
from offline_core.learning.kept_rows import KeptRows
from offline_core.learning.mapping import Pool
from offline_core.learning.origin import Origin
from offline_core.prelearner.layout import IS_STEP, PRELEARNER_SECONDS, STARTS
from offline_core.prelearner.pipeline import Pipeline, Spaces
from offline_core.seeding import derive_seed
from offline_core.storage.pieces import READ_SECONDS

if TYPE_CHECKING:
    from offline_core.learning.algorithms.algorithm import Algorithm
    from offline_core.learning.feed import Feed, Part

log = logging.getLogger(__name__)

BYTES_BESIDE = 40
"""A step's reward, end, row numbers, and what an algorithm adds, beside its observation and action."""
WHILE_JOINING = 2
"""Parts and the whole are both in memory for a moment."""


SECONDS = (READ_SECONDS, PRELEARNER_SECONDS)


class Source(Protocol):
    """Where the steps come from; small, and sent to every learner."""

    @property
    def origin(self) -> Origin:
        """The place, and what is known of it."""

    @property
    def is_own(self) -> bool:
        """Code of the user's own decides which steps come out; `origin` does not say how many."""

    @property
    def environment(self) -> EnvironmentSpec | None:
        """Where it was recorded, if it says so, and if what a policy sees there is what it learned from."""

    @property
    def pipeline(self) -> Pipeline:
        """What all columns go through; its spaces are those that a policy learns."""

    def parts(
        self,
        wanted: Sequence[str],
        *,
        looks_ahead: bool,
        pool: Pool | None,
        order: np.random.Generator | None,
        rows: KeptRows | None,
    ) -> Iterator[Part]:
        """All of it once, in parts of whole episodes; the same each time.

        Arguments:
            wanted: columns to start from.
            looks_ahead: with the observations after the last steps.
            pool: of actors that map rows; None: this process does.
            order: draws another order, if there is a choice.
            rows: reads them but once; None: from the files.
        """

    def reading(self) -> contextlib.AbstractContextManager[None]:
        """Around whatever reads it: errors come out as ours."""


def parts_of(
    source: Source,
    algorithm: Algorithm | type[Algorithm],
    *,
    pool: Pool | None = None,
    order: np.random.Generator | None = None,
    rows: KeptRows | None = None,
) -> Iterator[Part]:
    """All of it once, with the columns that the algorithm needs; see `Source.parts`.

    Raises:
        SchemaError: a column is missing that neither the source has nor a connector makes.
    """
    own = source.pipeline
    wanted = (*(name for name in algorithm.stored if name not in own.adds), *sorted(own.reads - set(algorithm.stored)))
    # `new_obs` of a batch is looked up some rows later; as a column it would stand in the way of that.
    kept = {*algorithm.stored, *algorithm.batch_columns} - ({columns.NEW_OBS} - set(algorithm.stored))
    made = source.parts(wanted, looks_ahead=algorithm.looks_ahead or own.looks_ahead, pool=pool, order=order, rows=rows)
    return (_kept(part, algorithm.stored, kept, source.origin.ref.uri) for part in made)


def make_feed(
    source: Source,
    config: DataConfig,
    algorithm: Algorithm | type[Algorithm],
    *,
    expected_steps: int | None = None,
    streamed: bool,
    seed: int,
    taken_cpus: float = 0.0,
    optimizer: OptimizerConfig = OptimizerConfig(),
) -> Feed:
    """The steps of `source` for learners; needs Ray if there are to be prelearners.

    Arguments:
        streamed: read it anew each epoch; otherwise it stays in memory.
        seed: of the order in which a stream reads.
        taken_cpus: CPUs that Ray reserves for learners.
        optimizer: whose batches come out of a replay buffer, if there is one.
    """
    from offline_core.learning.feed import ResidentFeed, StreamingFeed

    pool = _pool(config, taken_cpus)
    uri = source.origin.ref.uri
    if not streamed:
        return ResidentFeed(parts_of(source, algorithm, pool=pool), where=uri, expected_steps=expected_steps)

    rows = KeptRows() if config.resident_bytes == "rows" else None

    def parts(epoch: int) -> Iterator[Part]:
        order = np.random.default_rng(derive_seed(seed, "pieces", epoch))
        return parts_of(source, algorithm, pool=pool, order=order, rows=rows)

    if config.buffer is not None:
        from offline_core.learning.replay.feed import ReplayFeed

        return ReplayFeed.of(parts, config.buffer, optimizer, where=uri, expected_steps=expected_steps)
    return StreamingFeed(
        parts,
        where=uri,
        window_steps=config.window_steps,
        expected_steps=expected_steps,
    )


def resident_bytes(source: Source, steps: int) -> int:
    """What so many steps take in memory, while they are put together."""
    return steps * (bytes_per_step(source.pipeline.spaces) + BYTES_BESIDE) * WHILE_JOINING


def is_streamed(source: Source, steps: int, config: DataConfig) -> bool:
    """So many steps are too large to stay in memory, or go through a buffer. Logs where they will be, and why."""
    ref = source.origin.ref
    if config.buffer is not None:
        log.info("%s goes through a buffer of %s steps", ref.uri, f"{config.buffer.capacity_steps:,}")
        return True
    if config.resident_bytes == "rows":
        log.info("%s is streamed, and what is stored stays in memory (data.resident_bytes)", ref.uri)
        return True
    needed = resident_bytes(source, steps)
    limit = psutil.virtual_memory().available // 3 if config.resident_bytes is None else config.resident_bytes
    sizes = f"it takes about {needed:,} bytes, {limit:,} are allowed (data.resident_bytes)"
    if needed <= limit:
        log.info("%s stays in memory: %s", ref.uri, sizes)
        return False
    log.info("%s is streamed, %s steps at a time: %s", ref.uri, f"{config.window_steps:,}", sizes)
    return True


def wants_prelearners(config: DataConfig) -> bool:
    """Actors are to read, so Ray has to be up."""
    return config.data_class is None and config.prelearners not in (0, "auto")  # a data class maps by itself


def _pool(config: DataConfig, taken_cpus: float) -> Pool | None:
    """How many to start.

    Raises:
        ConfigError: more than there are CPUs or GPUs for.
    """
    if not wants_prelearners(config):
        return None
    import ray

    assert config.prelearners != "auto"
    there = ray.cluster_resources()
    cpus = there.get("CPU", 0.0) - taken_cpus
    smallest, largest = (config.prelearners,) * 2 if isinstance(config.prelearners, int) else config.prelearners
    wanted = smallest * config.cpus_per_prelearner
    if wanted + 1 > cpus:
        raise ConfigError(
            f"{smallest} prelearners want {wanted:g} CPUs and reading wants one more, but Ray has {cpus:g} for them: "
            "nothing would ever be read. Lower data.prelearners or data.cpus_per_prelearner."
        )
    if (gpus := smallest * config.gpus_per_prelearner) > there.get("GPU", 0.0):
        raise ConfigError(
            f"{smallest} prelearners want {gpus:g} GPUs, but Ray has {there.get('GPU', 0.0):g}: they would never start. Lower "
            "data.prelearners or data.gpus_per_prelearner."
        )
    _check_options(config, smallest, there)
    return smallest, largest


def _check_options(config: DataConfig, actors: int, there: Mapping[str, float]) -> None:
    """Ray has what so many prelearners want beside CPUs and GPUs.

    Raises:
        ConfigError: it has not.
    """
    options = config.prelearner_options
    for name, each in ({} if options is None else options.reserved).items():
        if (wanted := actors * each) > there.get(name, 0.0):
            raise ConfigError(
                f"{actors} prelearners want {wanted:g} {name}, but Ray has {there.get(name, 0.0):g}: they would never start. "
                "Lower data.prelearners or correct data.prelearner_options."
            )


def _kept(part: Part, stored: Sequence[str], kept: Collection[str], where: str) -> Part:
    names = {path: path.partition(PATH_SEPARATOR)[0] for path in part}
    if len(part[STARTS]) and (missing := set(stored) - set(names.values())):
        raise SchemaError(
            f"{where}: the column {', '.join(sorted(missing))} is missing from what the prelearner and its connectors made."
        )
    return {path: column for path, column in part.items() if names[path] in kept or path in (STARTS, IS_STEP, *SECONDS)}


def bytes_per_step(spaces: Spaces) -> int:
    """What one observation and one action take in memory."""
    return sum(_space_bytes(space) for space in spaces)


def _space_bytes(space: gym.Space[Any]) -> int:
    match space:
        case gym.spaces.Dict():
            return sum(map(_space_bytes, space.spaces.values()))
        case gym.spaces.Tuple():
            return sum(map(_space_bytes, space.spaces))
        case gym.spaces.Text():
            return int(space.max_length) * 4
    return int(np.prod(space.shape or ())) * np.dtype(space.dtype).itemsize
