"""From stored rows to episode batches: by this process, or by a pool of actors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from offline_core.data.episodes import EpisodeBatch
from offline_core.errors import ConfigError
from offline_core.learning.config import DataConfig
from offline_core.learning.prelearner.mapper import Mapper, RayMapper, make_prelearner, whole_episodes
from offline_core.learning.prelearner.pipeline import Pipeline
from offline_core.learning.prelearner.prelearner import Rows


class Pool(NamedTuple):
    """Actors that map rows for one learner, and what reads for them."""

    smallest: int
    largest: int
    read_cpus: float = 1.0
    """Of each task that reads."""


@dataclass(frozen=True, slots=True)
class Mapping:
    """The arguments of every mapper of a run."""

    config: DataConfig
    format: Rows
    wanted: tuple[str, ...]
    pipeline: Pipeline
    needs_next_obs: bool
    where: str

    def mapper(self) -> Mapper:
        """One for this process."""
        return Mapper(**self._arguments)

    def stored_columns(self, present: Sequence[str]) -> list[str]:
        """The columns of a dataset that are read, of those that are present."""
        names = make_prelearner(self.config.prelearner, self._given).stored_columns()
        return list(present if names is None else names)

    def pooled(self, rows: Any, pool: Pool) -> Iterator[EpisodeBatch]:
        """The rows of a `ray.data.Dataset` mapped by actors, in their order.

        Raises:
            ConfigError: a user's connectors cannot be sent to other processes.
        """
        import ray.data

        check_can_be_sent(self._arguments)
        smallest, largest, _ = pool
        mapped = rows.map_batches(
            RayMapper,
            fn_constructor_kwargs=self._arguments,
            batch_size=None,
            batch_format="pyarrow",
            zero_copy_batch=True,
            compute=ray.data.ActorPoolStrategy(min_size=smallest, max_size=largest, initial_size=smallest),
            num_cpus=self.config.cpus_per_prelearner,
            num_gpus=self.config.gpus_per_prelearner or None,
            **({} if (options := self.config.prelearner_options) is None else options.named),
        )
        mapped.context.execution_options.preserve_order = True  # the order of the rows, not of their completion
        blocks = mapped.iter_batches(batch_size=None, batch_format="numpy", prefetch_batches=self.config.prefetch)
        return whole_episodes(blocks, has_last=self.needs_next_obs)

    @property
    def _given(self) -> dict[str, Any]:
        return {"format": self.format, "wanted": self.wanted, "needs_next_obs": self.needs_next_obs, "where": self.where}

    @property
    def _arguments(self) -> dict[str, Any]:
        return {"user_code": self.config.prelearner, "given": self._given, "pipeline": self.pipeline, "timed": True}


def wants_prelearners(config: DataConfig) -> bool:
    """Whether actors read, so that Ray has to be up."""
    return config.data_class is None and config.prelearners not in (0, "auto")  # a data class maps by itself


def prelearner_pool(config: DataConfig, taken_cpus: float, world: int = 1) -> Pool | None:
    """How many prelearners to start for each of `world` learners; None: none.

    Raises:
        ConfigError: more than there are CPUs, GPUs or other resources for.
    """
    if not wants_prelearners(config):
        return None
    import ray

    assert config.prelearners != "auto"
    there = ray.cluster_resources()
    cpus = there.get("CPU", 0.0) - taken_cpus
    smallest, largest = (config.prelearners,) * 2 if isinstance(config.prelearners, int) else config.prelearners
    each_smallest, each_largest = math.ceil(smallest / world), math.ceil(largest / world)
    smallest = each_smallest * world
    wanted = smallest * config.cpus_per_prelearner
    each = f", {each_smallest} for each of {world} learners," if world > 1 else ""
    if wanted + 1 > cpus:
        raise ConfigError(
            f"{smallest} prelearners{each} want {wanted:g} CPUs and reading wants one more, but Ray has {cpus:g} for them: "
            "nothing would ever be read. Lower data.prelearners or data.cpus_per_prelearner."
        )
    if (gpus := smallest * config.gpus_per_prelearner) > there.get("GPU", 0.0):
        raise ConfigError(
            f"{smallest} prelearners{each} want {gpus:g} GPUs, but Ray has {there.get('GPU', 0.0):g}: they would never start. "
            "Lower data.prelearners or data.gpus_per_prelearner."
        )
    options = config.prelearner_options
    for name, amount in ({} if options is None else options.reserved).items():
        if (wanted := smallest * amount) > there.get(name, 0.0):
            raise ConfigError(
                f"{smallest} prelearners{each} want {wanted:g} {name}, but Ray has {there.get(name, 0.0):g}: they would never "
                "start. Lower data.prelearners or correct data.prelearner_options."
            )
    return Pool(each_smallest, each_largest, 1 / world)


def check_can_be_sent(made: object) -> None:
    """Raises a ConfigError if a user's connector or prelearner cannot be sent to other processes."""
    from ray import cloudpickle

    try:
        cloudpickle.dumps(made)
    except Exception as error:  # whatever the user's objects hold
        raise ConfigError(
            f"A connector or prelearner cannot be sent to other processes: {error!r}. Set data.prelearners and "
            "compute.learners to 0."
        ) from error
