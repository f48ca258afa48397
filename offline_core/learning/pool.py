"""Prelearners as a pool of Ray's actors, which map rows for the learners."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from offline_core.data.episodes import EpisodeBatch
from offline_core.errors import ConfigError
from offline_core.learning.config import ComputeConfig, DataConfig
from offline_core.learning.prelearner.mapper import Mapper

_ENDS = "_ends"
"""(R,) bool in Ray's blocks: the row is the last of its episode."""


@dataclass(frozen=True, slots=True)
class PrelearnerPool:
    """The actors of one learner."""

    config: DataConfig
    smallest: int
    """Number of actors at the start, and at least."""
    largest: int
    read_cpus: float
    """CPUs that Ray reserves for each task that reads."""

    @classmethod
    def of(cls, config: DataConfig, compute: ComputeConfig) -> PrelearnerPool | None:
        """Return the pool of each learner; None: the learners map rows by themselves.

        Raises:
            ConfigError: There are more prelearners than Ray has CPUs, GPUs or other resources for.
        """
        if not wants_prelearners(config):
            return None
        assert config.prelearners != "auto"
        learners = max(1, compute.processes)
        smallest, largest = (config.prelearners,) * 2 if isinstance(config.prelearners, int) else config.prelearners
        smallest, largest = math.ceil(smallest / learners), math.ceil(largest / learners)
        _check_resources(config, compute, smallest, learners)
        return cls(config, smallest, largest, 1 / learners)

    def map(self, mapper: Mapper, rows: Any) -> Iterator[EpisodeBatch]:
        """Return the batches of the rows of a `ray.data.Dataset`, in their order.

        Raises:
            ConfigError: A user's connectors cannot be sent to other processes.
        """
        import ray.data

        mapper, config = replace(mapper), self.config  # without its prelearner, which each actor makes for itself
        check_can_be_sent(mapper)
        compute = ray.data.ActorPoolStrategy(min_size=self.smallest, max_size=self.largest, initial_size=self.smallest)
        mapped = rows.map_batches(
            PrelearnerActor,
            fn_constructor_args=(mapper,),
            batch_size=None,
            batch_format="pyarrow",
            zero_copy_batch=True,
            compute=compute,
            num_cpus=config.cpus_per_prelearner,
            num_gpus=config.gpus_per_prelearner or None,
            **({} if (options := config.prelearner_options) is None else options.named),
        )
        mapped.context.execution_options.preserve_order = True  # the order of the rows, not of their completion
        blocks = mapped.iter_batches(batch_size=None, batch_format="numpy", prefetch_batches=config.prefetch)
        return whole_episodes(blocks, has_last=mapper.needs_next_obs)


class PrelearnerActor:
    """What each actor of a pool runs."""

    def __init__(self, mapper: Mapper) -> None:
        self._mapper = mapper

    def __call__(self, rows: pa.Table) -> dict[str, np.ndarray]:
        """Return a block of Ray Data, see `whole_episodes`."""
        batch = self._mapper.timed(rows)
        ends = np.zeros(batch.rows, bool)
        ends[batch.offsets[1:] - 1] = True
        return {**batch.columns, _ENDS: ends}


def whole_episodes(blocks: Iterable[dict[str, np.ndarray]], *, has_last: bool) -> Iterator[EpisodeBatch]:
    """Return the batches of the blocks of a `PrelearnerActor`.

    Ray may cut a large block at any row: what is no whole episode waits for its rest.
    """
    waiting: list[dict[str, np.ndarray]] = []
    held_rows = 0
    for block in blocks:
        columns = dict(block)
        ends = columns.pop(_ENDS, np.zeros(0, bool))
        stops = np.flatnonzero(ends) + 1
        stop = int(stops[-1]) if len(stops) else 0
        if stop:
            waiting.append({name: column[:stop] for name, column in columns.items()})
            joined = {name: np.concatenate([part[name] for part in waiting]) for name in columns} if held_rows else waiting[0]
            yield EpisodeBatch(columns=joined, offsets=np.append(0, stops + held_rows), has_last=has_last)
            waiting, held_rows = [], 0
        if stop < len(ends):
            waiting.append({name: column[stop:] for name, column in columns.items()})
            held_rows += len(ends) - stop


def wants_prelearners(config: DataConfig) -> bool:
    """Whether actors map rows, so that Ray has to be up."""
    return config.data_class is None and config.prelearners not in (0, "auto")  # a data class maps by itself


def check_can_be_sent(mapping: object) -> None:
    """Raise a ConfigError if a user's connector or prelearner cannot be sent to other processes."""
    from ray import cloudpickle

    try:
        cloudpickle.dumps(mapping)
    except Exception as error:  # whatever the user's objects hold
        raise ConfigError(
            f"A connector or prelearner cannot be sent to other processes: {error!r}. Set data.prelearners and "
            "compute.learners to 0."
        ) from error


def _check_resources(config: DataConfig, compute: ComputeConfig, of_learner: int, learners: int) -> None:
    """Raise a ConfigError if Ray will never have the resources of so many prelearners of each learner."""
    import ray

    number, resources = of_learner * learners, ray.cluster_resources()
    cpus = resources.get("CPU", 0.0) - compute.processes * compute.cpus_per_learner
    wanted_cpus = number * config.cpus_per_prelearner
    per_learner = f", {of_learner} for each of {learners} learners," if learners > 1 else ""
    if wanted_cpus + 1 > cpus:
        raise ConfigError(
            f"{number} prelearners{per_learner} want {wanted_cpus:g} CPUs and reading wants one more, but Ray has {cpus:g} for "
            "them: nothing would ever be read. Lower data.prelearners or data.cpus_per_prelearner."
        )
    gpus, who = number * config.gpus_per_prelearner, f"{number} prelearners{per_learner}"
    check_resource(who, gpus, "GPU", "Lower data.prelearners or data.gpus_per_prelearner")
    options = config.prelearner_options
    for name, amount in ({} if options is None else options.reserved).items():
        check_resource(who, number * amount, name, "Lower data.prelearners or correct data.prelearner_options")


def check_resource(who: str, wanted: float, name: str, remedy: str) -> None:
    """Raise a ConfigError if Ray will never have so much of a resource."""
    import ray

    if wanted > (there := ray.cluster_resources().get(name, 0.0)):
        name = f"{name}s" if name in ("CPU", "GPU") else name
        raise ConfigError(f"{who} want {wanted:g} {name}, but Ray has {there:g}: they would never start. {remedy}.")
