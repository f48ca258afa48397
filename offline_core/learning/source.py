"""From a dataset to a feed: maps it through the prelearners and decides whether it stays in memory."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np

from offline_core.errors import ConfigError
from offline_core.learning.config import ComputeConfig, TrainingConfig
from offline_core.learning.losses import Algorithm
from offline_core.prelearner.connectors import CheckFinite, CheckSpaces
from offline_core.prelearner.prelearner import PreLearner
from offline_core.storage.dataset import Dataset
from offline_core.storage.reader import spaces_of

if TYPE_CHECKING:
    from offline_core.learning.feed import Feed

log = logging.getLogger(__name__)

Spaces = tuple[gym.Space[Any], gym.Space[Any]]

TABLE_ROWS_PER_READ = 1024
"""A step is about a thousandth of an episode: `rows_per_read_batch` is multiplied by this for tables."""


def training_spaces(source: Dataset) -> Spaces:
    """(observation space, action space) of the recorded steps.

    Raises:
        ConfigError: the dataset does not say.
    """
    observation_space, action_space = spaces_of(source)
    if observation_space is None or action_space is None:
        raise ConfigError(f"{source.location.uri} does not say which spaces its observations and actions are from.")
    return observation_space, action_space


def make_feed(source: Dataset, config: TrainingConfig, algorithm: Algorithm, spaces: Spaces) -> Feed:
    """The steps of `source` as batches for the learner; needs Ray. Logs where the data stays and why."""
    import ray
    import ray.data

    from offline_core.learning.feed import ResidentFeed, StreamingFeed
    from offline_core.storage.ray_reader import ray_dataset

    compute, batch_size = config.compute, config.optimizer.batch_size
    prelearner: dict[str, Any] = {
        "format": source.manifest.format,
        "wanted": algorithm.wanted,
        "connectors": (CheckSpaces(*spaces), CheckFinite()),
        "where": source.location.uri,
    }
    _check_cpus(compute)
    mapped = ray_dataset(source, PreLearner(**prelearner).stored_columns()).map_batches(
        PreLearner,
        fn_constructor_kwargs=prelearner,
        batch_size=compute.rows_per_read_batch * (TABLE_ROWS_PER_READ if source.manifest.format == "table" else 1),
        batch_format="pyarrow",
        zero_copy_batch=True,
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=compute.prelearners, initial_size=compute.prelearners),
        num_cpus=compute.cpus_per_prelearner,
    )
    needed = source.manifest.statistics.steps * bytes_per_step(spaces)
    limit = compute.resident_bytes
    if limit is None:
        limit = int(ray.cluster_resources().get("object_store_memory", 0))
    if needed <= limit:
        log.info("%s stays in memory: %s bytes of %s allowed", source.location.uri, f"{needed:,}", f"{limit:,}")
        return ResidentFeed(mapped, batch_size=batch_size, seed=config.seed, expected_steps=source.manifest.statistics.steps)
    window = compute.shuffle_window_steps
    log.info(
        "%s is streamed: %s bytes, %s allowed; shuffled within %s steps",
        source.location.uri,
        f"{needed:,}",
        f"{limit:,}",
        window,
    )
    return StreamingFeed(mapped, batch_size=batch_size, seed=config.seed, window_steps=window)


def _check_cpus(compute: ComputeConfig) -> None:
    import ray

    cpus = ray.cluster_resources().get("CPU", 0.0)
    wanted = compute.prelearners * compute.cpus_per_prelearner
    if wanted + 1 > cpus:
        raise ConfigError(
            f"{compute.prelearners} prelearners want {wanted:g} CPUs and reading wants one more, but Ray has {cpus:g}: nothing "
            "would ever be read. Lower compute.prelearners or compute.cpus_per_prelearner."
        )


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
