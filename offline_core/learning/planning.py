"""Chooses the numbers of prelearners and learners by a short measurement, and the predicted time of each choice.

Predictions are wall-clock seconds on the cores at hand. They compare choices, and do not promise how long a training takes,
which may end long before its last epoch.
"""

from __future__ import annotations

import logging
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil
import torch

from offline_core.data.episodes import EpisodeBatch
from offline_core.errors import ConfigError
from offline_core.learning.config import TrainingConfig
from offline_core.learning.data_loader import joined, without_seconds
from offline_core.learning.learner import Learner
from offline_core.learning.recorded import Recorded
from offline_core.learning.rows import SampleRows
from offline_core.learning.shards import SHARDS, Shards
from offline_core.learning.source import training_columns
from offline_core.learning.steps import Steps
from offline_core.runtime.ray_session import local_cpus, local_object_store_bytes, ray_is_up
from offline_core.runtime.torch_settings import torch_threads

if TYPE_CHECKING:
    from offline_core.learning.run import Run

log = logging.getLogger(__name__)

RAY_SECONDS = 4.0
"""Start of Ray, where it is not up."""
POOL_SECONDS = 5.0
"""Start of a pool of prelearners: once for data in memory, each epoch for a stream."""
LEARNERS_SECONDS = 9.0
"""Start of learners: Torch in each process, the process group."""
SYNC_SECONDS = 2e-3
"""Averaging gradients of a small network and metrics, per update with several learners."""
SYNC_BYTES_PER_SECOND = 1e9
POOL_SHARE = 0.7
"""Speed of a prelearner relative to this process, as rows and columns pass through the object store."""
WORTH = 0.8
"""Another choice must take less than this share of the simplest one's time."""
READ_SECONDS, UPDATE_SECONDS = 0.5, 0.3
"""Duration of the measurements, which have at least one part and one update."""


class Choice(NamedTuple):
    """Numbers of processes that read and learn; (0, 0): this process does both."""

    prelearners: int
    learners: int


@dataclass(frozen=True, slots=True)
class Costs:
    """Measured costs of one process, and the amount of work."""

    steps: int
    """Of an epoch."""
    epochs: int
    epoch_steps: int
    """Steps learned from in an epoch; not `steps` with a replay buffer."""
    batch_steps: int
    streamed: bool
    """Each epoch is read again while learners learn."""
    read_seconds_per_step: float
    """Reading and prelearning, in this process."""
    update_seconds: float
    """One update, in this process."""
    parameter_bytes: int
    cores: int
    ray_is_up: bool
    divided: bool = True
    """Each of several learners reads its share; otherwise each reads all."""
    most_learners: int = SHARDS

    @classmethod
    def of(cls, run: Run, **measured: Any) -> Costs:
        """Add the amount of work of a run to measured costs."""
        buffer, row_groups = run.config.data.buffer, run.source.row_groups
        return cls(
            steps=run.steps,
            epochs=max(1, math.ceil(run.total_steps / run.epoch_steps)),
            epoch_steps=run.epoch_steps,
            batch_steps=run.config.optimizer.batch_size,
            streamed=run.streamed,
            cores=max(1, int(ray_resources()["CPU"])),  # nodes with CPUs may have left the cluster
            divided=bool(row_groups) and buffer is None,
            most_learners=sys.maxsize if buffer else Shards.of(run.steps).number,
            **measured,
        )

    @property
    def updates(self) -> float:
        """Of all epochs."""
        return self.epochs * max(1.0, self.epoch_steps / self.batch_steps)

    def seconds(self, choice: Choice) -> float:
        """Return the predicted seconds of a training to its last epoch."""
        prelearners, learners = choice
        passes = self.epochs if self.streamed else 1
        share = min(learners, self.cores) if learners else 1
        pool = min(prelearners, self.cores) * POOL_SHARE if prelearners else share
        times = 1 if self.divided else max(1, learners)
        work = passes * times * self.steps * self.read_seconds_per_step  # seconds of one core
        read = work / pool + passes * POOL_SECONDS * bool(prelearners)
        updates = self.updates
        sync = (SYNC_SECONDS + 2 * self.parameter_bytes / SYNC_BYTES_PER_SECOND) if learners > 1 else 0.0
        update = updates * (self.update_seconds / share + sync)
        start = RAY_SECONDS * (bool(prelearners or learners) and not self.ray_is_up) + LEARNERS_SECONDS * bool(learners)
        if not self.streamed:
            return start + read + update
        all_cores = (work / (POOL_SHARE if prelearners else 1.0) + updates * self.update_seconds) / self.cores
        return start + max(read, update, all_cores)

    def best(self, choices: list[Choice]) -> Choice:
        """Return the fastest choice, unless the simplest takes about as long."""
        possible = [choice for choice in choices if choice.learners <= self.most_learners]
        ordered = sorted(possible or choices)
        fastest = min(ordered, key=self.seconds)
        return fastest if self.seconds(fastest) < WORTH * self.seconds(ordered[0]) else ordered[0]


def choices(config: TrainingConfig, resources: Mapping[str, float]) -> list[Choice]:
    """Return what `auto` chooses from with these resources of Ray; numbers in the parameters are fixed."""
    data, compute = config.data, config.compute
    own = data.data_class is not None  # it reads by itself, and is not measured
    cpus, gpus = resources.get("CPU", 0.0), resources.get("GPU", 0.0)
    reserved = {} if data.prelearner_options is None else data.prelearner_options.reserved
    wanted = {name: each for name, each in reserved.items() if not name.startswith("accelerator_type:")}
    read = ([0] if own else [0, *_doubled(int(cpus))]) if data.prelearners == "auto" else [_least(data.prelearners)]
    learn = ([0] if own else [0, *_doubled(int(cpus))[1:]]) if compute.learners == "auto" else [compute.learners]
    fit = []
    for prelearners, learners in product(read, learn):
        actors = math.ceil(prelearners / max(1, learners)) * max(1, learners)  # each learner has a pool of its own
        if (
            actors * data.cpus_per_prelearner + bool(actors) + learners * compute.cpus_per_learner <= cpus
            and actors * data.gpus_per_prelearner + learners * compute.gpus_per_learner <= gpus
            and all(actors * amount <= resources.get(name, 0.0) for name, amount in wanted.items())
        ):
            fit.append(Choice(prelearners, learners))
    return fit or [Choice(read[0], learn[0])]


def chosen_before(config: TrainingConfig) -> Choice:
    """Return the choice of a run that was planned, in which nothing is `auto`."""
    assert config.data.prelearners != "auto"
    return Choice(_least(config.data.prelearners), config.compute.processes)


def _least(prelearners: int | tuple[int, int]) -> int:
    return prelearners if isinstance(prelearners, int) else prelearners[0]


def _doubled(most: int) -> list[int]:
    """1, 2, 4 … up to `most`."""
    return [2**power for power in range(max(0, most).bit_length())]


def measured(run: Run) -> Costs:
    """Read a few parts and make a few updates of a copy of the networks, in less than two seconds unless reading is slow.

    Raises:
        DataError: The data cannot be read.
        EmptyDatasetError: There are no steps.
    """
    config = run.config
    algorithm = run.algorithm()
    batches, read_seconds_per_step = _read_some(
        training_columns(run.source, algorithm, rows=SampleRows(cuts=isinstance(run.source, Recorded)))
    )
    steps = Steps.of(joined(batches, run.source.origin.ref.uri))
    alone = config.model_copy(
        update={
            "compute": config.compute.model_copy(update={"learners": 0, "compile": False}),
            "data": config.data.model_copy(update={"buffer": None}),  # drawing is not measured
        }
    )
    update_seconds = 0.0  # for a GPU that only other nodes have
    if not config.compute.gpus_per_learner or torch.cuda.is_available():
        with torch_threads(config.compute.threads), torch.random.fork_rng():
            learner = Learner(algorithm, alone, total_steps=len(steps))
            learner.load(steps)
            indices = learner.indices()
            batch = indices.repeat(math.ceil(learner.batch_units / len(indices)))[: learner.batch_units]
            update_seconds = _seconds_of(lambda: learner.update(batch))
    return Costs.of(
        run,
        read_seconds_per_step=read_seconds_per_step,
        update_seconds=update_seconds,
        parameter_bytes=sum(each.numel() * each.element_size() for each in algorithm.parameters()),
        ray_is_up=ray_is_up(),
    )


def _read_some(batches: Iterator[EpisodeBatch]) -> tuple[list[EpisodeBatch], float]:
    """Return the first batches, and the seconds per step of the largest; the very first of several only warms up."""
    found: list[EpisodeBatch] = []
    costs: list[tuple[int, float]] = []
    begin = asked = time.perf_counter()
    for each in batches:
        batch, *told = without_seconds(each)
        found.append(batch)
        costs.append((len(batch), sum(told) or time.perf_counter() - asked))
        asked = time.perf_counter()
        if asked - begin > READ_SECONDS and any(steps for steps, _ in costs[1:]):
            break
    steps, seconds = max(costs[1:] if any(steps for steps, _ in costs[1:]) else costs)
    return found, seconds / max(1, steps)


def _seconds_of(update: Callable[[], object]) -> float:
    """Return the median of a few calls after the first, which warms up."""
    update()
    took: list[float] = []
    while sum(took) < UPDATE_SECONDS and len(took) < 30:
        begin = time.perf_counter()
        update()
        took.append(time.perf_counter() - begin)
    return statistics.median(took)


def ray_resources() -> dict[str, float]:
    """Return the resources of the Ray that is up, else of the one that would be started, by name."""
    if ray_is_up():
        import ray

        return {"CPU": 0.0, **ray.cluster_resources()}
    memory = psutil.virtual_memory().available - local_object_store_bytes()
    return {"CPU": local_cpus(), "GPU": torch.cuda.device_count(), "memory": memory}


def planned(run: Run) -> Run:
    """Return the run with numbers in place of `auto`, and log why.

    A run that reads and learns in this process is not measured, nor is a data class, which reads by itself.

    Raises:
        ConfigError: Learners with GPUs cannot be measured, as this process sees none.
    """
    config = run.config
    if config.compute.learners == "auto" and config.compute.gpus_per_learner and not torch.cuda.is_available():
        raise ConfigError("compute.learners=auto is measured in this process, which sees no GPU: set a number.")
    if (config.data.prelearners, config.compute.learners) == (0, 0) or config.data.data_class is not None:
        return replace(run, config=_chosen(config, Choice(0, 0)))
    costs = measured(run)
    run = replace(run, costs=costs)
    if "auto" not in (config.data.prelearners, config.compute.learners):
        return run
    chosen = costs.best(choices(config, ray_resources()))
    log.info(
        "%s: %s. Measured here: reading %s steps/s, an update of %s steps in %.1f ms; in one process all epochs would take "
        "about %.0f s, so %.0f s",
        run.source.origin.ref.uri,
        _words(chosen),
        f"{1 / max(costs.read_seconds_per_step, 1e-12):,.0f}",
        f"{costs.batch_steps:,}",
        1e3 * costs.update_seconds,
        costs.seconds(Choice(0, 0)),
        costs.seconds(chosen),
    )
    return replace(run, config=_chosen(config, chosen))


def _chosen(config: TrainingConfig, choice: Choice) -> TrainingConfig:
    data, compute = config.data, config.compute
    if data.prelearners == "auto":
        data = data.model_copy(update={"prelearners": choice.prelearners})
    if compute.learners == "auto":
        compute = compute.model_copy(update={"learners": choice.learners})
    return config.model_copy(update={"data": data, "compute": compute})


def _words(choice: Choice) -> str:
    read = f"{choice.prelearners} prelearners read" if choice.prelearners else "this process reads"
    learn = f"{choice.learners} learners learn" if choice.learners else "this process learns"
    return f"{read}, {learn}"
