"""From a dataset to a feed: maps it through the prelearners and decides whether it stays in memory."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import psutil

from offline_core.errors import ConfigError
from offline_core.learning.config import DataConfig
from offline_core.prelearner.connectors import CheckFinite, CheckSpaces
from offline_core.prelearner.prelearner import PreLearner
from offline_core.seeding import derive_seed
from offline_core.storage.dataset import Dataset
from offline_core.storage.pieces import Piece, pieces, tables_of
from offline_core.storage.reader import spaces_of

if TYPE_CHECKING:
    from offline_core.learning.feed import Feed, Part

log = logging.getLogger(__name__)

Spaces = tuple[gym.Space[Any], gym.Space[Any]]

IN_PROCESS_BYTES = 64 * 2**20
"""Stored bytes that one process decodes sooner than a pool of actors has started."""
BYTES_BESIDE = 40
"""A step's reward, end, row numbers, and what an algorithm adds, beside its observation and action."""
WHILE_JOINING = 2
"""Parts and the whole are both in memory for a moment."""


def training_spaces(source: Dataset) -> Spaces:
    """(observation space, action space) of the recorded steps.

    Raises:
        ConfigError: the dataset does not say.
    """
    observation_space, action_space = spaces_of(source)
    if observation_space is None or action_space is None:
        raise ConfigError(f"{source.location.uri} does not say which spaces its observations and actions are from.")
    return observation_space, action_space


def make_feed(
    source: Dataset,
    config: DataConfig,
    spaces: Spaces,
    *,
    wanted: Sequence[str],
    looks_ahead: bool,
    streamed: bool,
    seed: int,
    taken_cpus: float = 0.0,
) -> Feed:
    """The steps of `source` for learners; needs Ray if there are to be prelearners.

    Arguments:
        wanted: columns of the dataset.
        looks_ahead: the observation after the last step is needed too.
        streamed: read it anew each epoch; otherwise it stays in memory.
        seed: of the order in which a stream reads.
        taken_cpus: CPUs that Ray reserves for learners.
    """
    from offline_core.learning.feed import ResidentFeed, StreamingFeed

    prelearner: dict[str, Any] = {
        "format": source.manifest.format,
        "wanted": tuple(wanted),
        "connectors": (CheckSpaces(*spaces), CheckFinite()),
        "looks_ahead": looks_ahead,
        "where": source.location.uri,
    }
    found = pieces(source, PreLearner(**prelearner).stored_columns())
    prelearners = _prelearners(source, config, taken_cpus)

    def parts(order: Sequence[Piece]) -> Iterator[Part]:
        if prelearners:
            return _pooled(order, prelearner, config, prelearners)
        return _here(order, PreLearner(**prelearner), config)

    if not streamed:
        return ResidentFeed(parts(found), where=source.location.uri, expected_steps=source.ref.steps)

    def shuffled(epoch: int) -> Iterator[Part]:
        order = np.random.default_rng(derive_seed(seed, "pieces", epoch)).permutation(len(found))
        return parts([found[number] for number in order])

    return StreamingFeed(shuffled, where=source.location.uri, window_steps=config.window_steps)


def is_streamed(source: Dataset, config: DataConfig, spaces: Spaces) -> bool:
    """It is too large to stay in memory. Logs where it will be, and why."""
    needed = source.ref.steps * (bytes_per_step(spaces) + BYTES_BESIDE) * WHILE_JOINING
    limit = psutil.virtual_memory().available // 3 if config.resident_bytes is None else config.resident_bytes
    sizes = f"it takes about {needed:,} bytes, {limit:,} are allowed (data.resident_bytes)"
    if needed <= limit:
        log.info("%s stays in memory: %s", source.location.uri, sizes)
        return False
    log.info("%s is streamed, %s steps at a time: %s", source.location.uri, f"{config.window_steps:,}", sizes)
    return True


def _here(order: Sequence[Piece], prelearner: PreLearner, config: DataConfig) -> Iterator[Part]:
    return map(prelearner, tables_of(order, prelearner.stored_columns(), together=config.row_groups_per_read))


def _pooled(order: Sequence[Piece], prelearner: dict[str, Any], config: DataConfig, prelearners: int) -> Iterator[Part]:
    import ray.data

    from offline_core.storage.ray_reader import ray_pieces

    names = PreLearner(**prelearner).stored_columns()
    mapped = ray_pieces(order, names, pieces_per_read=config.row_groups_per_read).map_batches(
        PreLearner,
        fn_constructor_kwargs=prelearner,
        batch_size=None,
        batch_format="pyarrow",
        zero_copy_batch=True,
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=prelearners, initial_size=prelearners),
        num_cpus=config.cpus_per_prelearner,
    )
    mapped.context.execution_options.preserve_order = True  # the order of the pieces, and not that of their completion
    mapped.context.target_max_block_size = None  # blocks of whole episodes, however large
    return iter(mapped.iter_batches(batch_size=None, batch_format="numpy", prefetch_batches=config.prefetch))


def wants_prelearners(source: Dataset, config: DataConfig) -> bool:
    """Actors are to read it, so Ray has to be up."""
    return source.ref.bytes > IN_PROCESS_BYTES if config.prelearners is None else config.prelearners > 0


def _prelearners(source: Dataset, config: DataConfig, taken_cpus: float) -> int:
    """How many to start.

    Raises:
        ConfigError: more than there are CPUs for.
    """
    if not wants_prelearners(source, config):
        return 0
    import ray

    cpus = ray.cluster_resources().get("CPU", 0.0) - taken_cpus
    if config.prelearners is None:
        prelearners = max(0, int((cpus - 1) / config.cpus_per_prelearner))
        log.info("%s: %s stored bytes, so %d prelearners", source.location.uri, f"{source.ref.bytes:,}", prelearners)
        return prelearners
    wanted = config.prelearners * config.cpus_per_prelearner
    if wanted + 1 > cpus:
        raise ConfigError(
            f"{config.prelearners} prelearners want {wanted:g} CPUs and reading wants one more, but Ray has {cpus:g} for them: "
            "nothing would ever be read. Lower data.prelearners or data.cpus_per_prelearner."
        )
    return config.prelearners


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
