"""What a training costs: measured shortly before it, predicted for each choice of processes, and told in words after it.

Predictions are wall-clock seconds on the cores at hand. They compare choices, and do not promise how long a training takes,
which may end long before its last epoch.
"""

from __future__ import annotations

import itertools
import logging
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import psutil
import pyarrow as pa
import torch

from offline_core.data.datasets.row_group import READ_SECONDS
from offline_core.data.episodes import EpisodeBatch
from offline_core.data.episodes.codecs import codec_of
from offline_core.data.episodes.columns import ROW_GROUP
from offline_core.errors import ConfigError
from offline_core.learning.config import TrainingConfig
from offline_core.learning.data_loader import joined
from offline_core.learning.experience import Seconds
from offline_core.learning.learner import Learner
from offline_core.learning.prelearner.mapper import ReadSoFar, without_seconds
from offline_core.learning.run import Run
from offline_core.learning.shards import SHARDS, Shards
from offline_core.learning.source import Read, resident_bytes
from offline_core.learning.steps import Steps
from offline_core.runtime.ray_session import local_cpus, local_object_store_bytes, ray_is_up
from offline_core.runtime.torch_settings import gpus_in_use, torch_threads

log = logging.getLogger(__name__)

READ_LIMIT_SECONDS, UPDATE_LIMIT_SECONDS = 0.5, 0.3
"""Durations of the measurements, which have at least one batch and one update."""
READ_AT_ONCE_BYTES = 64 * 2**20
"""So much is read sooner than prelearners start, however it is stored."""
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


class Processes(NamedTuple):
    """Numbers of processes that read and learn; (0, 0): this process does both."""

    prelearners: int
    learners: int


@dataclass(frozen=True, slots=True)
class Costs:
    """Measured costs of one process, and the amount of work."""

    steps: int
    """Steps of an epoch."""
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

    @property
    def updates(self) -> float:
        """Updates in all epochs."""
        return self.epochs * max(1.0, self.epoch_steps / self.batch_steps)

    def seconds(self, choice: Processes) -> float:
        """Return the predicted seconds of a training to its last epoch."""
        prelearners, learners = choice
        passes = self.epochs if self.streamed else 1
        times = 1 if self.divided else max(1, learners)
        core_seconds = passes * times * self.steps * self.read_seconds_per_step
        share = min(learners, self.cores) if learners else 1
        read = core_seconds / share
        if prelearners:
            read = core_seconds / (min(prelearners, self.cores) * POOL_SHARE) + passes * POOL_SECONDS
        sync = (SYNC_SECONDS + 2 * self.parameter_bytes / SYNC_BYTES_PER_SECOND) if learners > 1 else 0.0
        update = self.updates * (self.update_seconds / share + sync)
        start = RAY_SECONDS * (bool(prelearners or learners) and not self.ray_is_up) + LEARNERS_SECONDS * bool(learners)
        if not self.streamed:
            return start + read + update
        all_cores = core_seconds / (POOL_SHARE if prelearners else 1.0) + self.updates * self.update_seconds
        return start + max(read, update, all_cores / self.cores)

    def best(self, choices: list[Processes]) -> Processes:
        """Return the fastest choice, unless the simplest takes about as long."""
        possible = [choice for choice in choices if choice.learners <= self.most_learners]
        ordered = sorted(possible or choices)
        fastest = min(ordered, key=self.seconds)
        return fastest if self.seconds(fastest) < WORTH * self.seconds(ordered[0]) else ordered[0]


def choices(config: TrainingConfig, resources: Mapping[str, float]) -> list[Processes]:
    """Return what `auto` chooses from with these resources of Ray; numbers in the parameters are fixed."""
    data, compute = config.data, config.compute
    is_own = data.data_class is not None  # it reads by itself, and is not measured
    cpus, gpus = resources.get("CPU", 0.0), resources.get("GPU", 0.0)
    reserved = {} if data.prelearner_options is None else data.prelearner_options.reserved
    others = {name: amount for name, amount in reserved.items() if not name.startswith("accelerator_type:")}
    readers = ([0] if is_own else [0, *_doubled(int(cpus))]) if data.prelearners == "auto" else [_least(data.prelearners)]
    learners = ([0] if is_own else [0, *_doubled(int(cpus))[1:]]) if compute.learners == "auto" else [compute.learners]

    def fits(choice: Processes) -> bool:
        pools = max(1, choice.learners)
        actors = math.ceil(choice.prelearners / pools) * pools  # each learner has a pool of its own
        return (
            actors * data.cpus_per_prelearner + bool(actors) + choice.learners * compute.cpus_per_learner <= cpus
            and actors * data.gpus_per_prelearner + choice.learners * compute.gpus_per_learner <= gpus
            and all(actors * amount <= resources.get(name, 0.0) for name, amount in others.items())
        )

    every = [Processes(*numbers) for numbers in itertools.product(readers, learners)]
    return list(filter(fits, every)) or every[:1]


def _least(prelearners: int | tuple[int, int]) -> int:
    return prelearners if isinstance(prelearners, int) else prelearners[0]


def _doubled(most: int) -> list[int]:
    """1, 2, 4 … up to `most`."""
    return [2**power for power in range(max(0, most).bit_length())]


def ray_resources() -> dict[str, float]:
    """Return the resources of the Ray that is up, else of the one that would be started, by name."""
    if ray_is_up():
        import ray

        return {"CPU": 0.0, **ray.cluster_resources()}
    memory = psutil.virtual_memory().available - local_object_store_bytes()
    return {"CPU": local_cpus(), "GPU": torch.cuda.device_count(), "memory": memory}


def costs_of(run: Run, **measured: Any) -> Costs:
    """Add the amount of work of a run to measured costs."""
    buffer, row_groups = run.config.data.buffer, run.source.row_groups
    return Costs(
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


def measured(run: Run) -> Costs:
    """Read a few batches and make a few updates of new networks, in less than two seconds unless reading is slow.

    Raises:
        DataError: The data cannot be read.
        EmptyDatasetError: There are no steps.
    """
    config, networks = run.config, run.networks()
    batches, read_seconds_per_step = _read_some(run.source.training_columns(run.algorithm, through=through_small_tables))
    steps = Steps.of(joined(batches, run.source.origin.ref.uri))
    alone = config.model_copy(
        update={
            "compute": config.compute.model_copy(update={"learners": 0, "compile": config.compute.compile and "auto"}),
            "optimizer": config.optimizer.model_copy(update={"max_updates": None}),  # few, which `auto` does not compile
            "data": config.data.model_copy(update={"buffer": None}),  # drawing is not measured
        }
    )
    update_seconds = 0.0  # for a GPU that only other nodes have
    if not config.compute.gpus_per_learner or torch.cuda.is_available():
        with torch_threads(config.compute.threads), torch.random.fork_rng(devices=gpus_in_use()):
            learner = Learner(networks, alone, total_steps=len(steps))
            learner.load(steps)
            indices = learner.indices()
            batch = indices.repeat(math.ceil(learner.batch_units / len(indices)))[: learner.batch_units]

            def update() -> None:
                learner.update(batch)
                learner.wait()

            update_seconds = _seconds_of(update)
    return costs_of(
        run,
        read_seconds_per_step=read_seconds_per_step,
        update_seconds=update_seconds,
        parameter_bytes=sum(parameter.numel() * parameter.element_size() for parameter in networks.parameters()),
        ray_is_up=ray_is_up(),
    )


def through_small_tables(numbers: Sequence[int] | None, read: Read) -> Iterator[pa.Table]:
    """Cut the row groups of a dataset into tables of 1, 2, 4 … whole episodes, so that a measurement can stop early.

    Each has its share of the seconds that reading took. Of other rows only a user's prelearner knows what belongs together, so
    they come as they are read.
    """
    begin = time.perf_counter()
    for table in read(numbers):
        read_seconds = time.perf_counter() - begin
        starts = _episode_starts(table)
        edges = [*starts[(2 ** np.arange(len(starts).bit_length()) - 1)].tolist(), table.num_rows] if table.num_rows else []
        for start, stop in itertools.pairwise(edges):
            seconds = np.zeros(stop - start, np.float32)
            seconds[:1] = read_seconds * (stop - start) / table.num_rows
            yield table.slice(start, stop - start).append_column(READ_SECONDS, pa.array(seconds))
        begin = time.perf_counter()


def _episode_starts(table: pa.Table) -> np.ndarray:
    """Return the rows at which the table may be cut."""
    return codec_of(table.schema).starts(table) if ROW_GROUP in table.column_names else np.zeros(1, np.int64)


def _read_some(batches: Iterator[EpisodeBatch]) -> tuple[list[EpisodeBatch], float]:
    """Return the first batches, and the seconds per step of the largest; the very first of several only warms up."""
    batches_read: list[EpisodeBatch] = []
    costs: list[tuple[int, float]] = []
    begin = asked = time.perf_counter()
    for timed in batches:
        batch, read_seconds, prelearner_seconds = without_seconds(timed)
        batches_read.append(batch)
        costs.append((len(batch), read_seconds + prelearner_seconds or time.perf_counter() - asked))
        asked = time.perf_counter()
        if asked - begin > READ_LIMIT_SECONDS and any(steps for steps, _ in costs[1:]):
            break
    steps, seconds = max(costs[1:] if any(steps for steps, _ in costs[1:]) else costs)
    return batches_read, seconds / max(1, steps)


def _seconds_of(update: Callable[[], object]) -> float:
    """Return the median of a few calls after the first, which warms up."""
    update()
    took: list[float] = []
    while sum(took) < UPDATE_LIMIT_SECONDS and len(took) < 30:
        begin = time.perf_counter()
        update()
        took.append(time.perf_counter() - begin)
    return statistics.median(took)


def _is_read_at_once(run: Run) -> bool:
    """Whether the data stays in memory, and this process reads it in a few seconds, for no code of a user's is among it."""
    return not run.streamed and not run.source.is_own and resident_bytes(run.source, run.steps) <= READ_AT_ONCE_BYTES


def planned(run: Run) -> tuple[Run, Costs | None]:
    """Return the run with numbers in place of `auto`, and log why; and its costs, if they were measured.

    A run that reads and learns in this process is not measured, nor is a data class, which reads by itself, nor what this
    process reads sooner than prelearners start.

    Raises:
        ConfigError: Learners with GPUs cannot be measured, as this process sees none.
    """
    config = run.config
    if config.compute.learners == "auto" and config.compute.gpus_per_learner and not torch.cuda.is_available():
        raise ConfigError("compute.learners=auto is measured in this process, which sees no GPU: set a number.")
    if (config.data.prelearners, config.compute.learners) == (0, 0) or config.data.data_class is not None:
        return replace(run, config=_chosen(config, Processes(0, 0))), None
    if config.data.prelearners == "auto" and config.compute.learners != "auto" and _is_read_at_once(run):
        return replace(run, config=_chosen(config, Processes(0, config.compute.learners))), None
    costs = measured(run)
    if "auto" not in (config.data.prelearners, config.compute.learners):
        return run, costs
    chosen = costs.best(choices(config, ray_resources()))
    log.info(
        "%s: %s. Measured here: reading %s steps/s, an update of %s steps in %.1f ms; in one process all epochs would take "
        "about %.0f s, so %.0f s",
        run.source.origin.ref.uri,
        _words(chosen),
        f"{1 / max(costs.read_seconds_per_step, 1e-12):,.0f}",
        f"{costs.batch_steps:,}",
        1e3 * costs.update_seconds,
        costs.seconds(Processes(0, 0)),
        costs.seconds(chosen),
    )
    return replace(run, config=_chosen(config, chosen)), costs


def _chosen(config: TrainingConfig, choice: Processes) -> TrainingConfig:
    data, compute = config.data, config.compute
    if data.prelearners == "auto":
        data = data.model_copy(update={"prelearners": choice.prelearners})
    if compute.learners == "auto":
        compute = compute.model_copy(update={"learners": choice.learners})
    return config.model_copy(update={"data": data, "compute": compute})


def _words(choice: Processes) -> str:
    read = f"{choice.prelearners} prelearners read" if choice.prelearners else "this process reads"
    learn = f"{choice.learners} learners learn" if choice.learners else "this process learns"
    return f"{read}, {learn}"


def bottleneck(
    config: TrainingConfig,
    seconds: Seconds,
    read: ReadSoFar,
    *,
    resident: bool,
    loading: float,
    steps: int,
    costs: Costs | None,
) -> str:
    """Return the rates of reading and learning, the largest share of the time, and parameters that would be faster.

    Arguments:
        resident: the data stays in memory, so that it was read before the first batch.
        loading: seconds until the first batch could be drawn.
        steps: learned from.
        costs: of reading and updating in one process, to predict other choices; None: too little was measured.
    """
    all_seconds = seconds.all + loading
    reading = read.seconds if resident else 0.0
    shares = {
        "starting": (loading - reading, "it is once a run"),
        "reading the data": (reading, "it is read once a run"),
        "waiting for data": (seconds.wait, "reading is slower than learning"),
        "gathering batches": (seconds.gather, "raise optimizer.batch_size"),
        "updating": (seconds.update, "the learner is busy, as it should be"),
        "reports, checkpoints and held-out loss": (seconds.pause, "raise optimizer.updates_per_iteration"),
    }
    name, (took, remark) = max(shares.items(), key=lambda share: share[1][0])
    learning = max(seconds.wait + seconds.gather + seconds.update, 1e-9)
    sentences = [f"Learned {steps / learning:,.0f} steps/s, waiting {100 * seconds.wait / learning:.0f} % of that time"]
    if read.seconds:
        learners = config.compute.processes
        reader = f"One of {learners} learners read" if learners > 1 else "Read"
        speed = f"{read.steps / read.seconds:,.0f} steps/s ({read.bytes / read.seconds / 1e6:,.0f} MB/s)"
        sentences.insert(0, f"{reader} and laid out {speed}")
    sentences.append(f"{100 * took / max(all_seconds, 1e-9):.0f} % of all time went into {name}: {remark}")
    return f"{'. '.join(sentences)}. {_faster(config, costs, all_seconds - seconds.pause)}"


def _faster(config: TrainingConfig, costs: Costs | None, took_seconds: float) -> str:
    """Return the choice that would have been clearly faster, by the measured costs."""
    if costs is None:
        return "Too little was measured to tell what would be faster."
    assert config.data.prelearners != "auto"
    now = Processes(_least(config.data.prelearners), config.compute.processes)
    data = config.data.model_copy(update={"prelearners": "auto"})
    compute = config.compute.model_copy(update={"learners": "auto"})
    best = costs.best(choices(config.model_copy(update={"data": data, "compute": compute}), ray_resources()))
    if best == now or costs.seconds(best) >= WORTH * took_seconds:
        return f"No other number of prelearners or learners would be clearly faster on {costs.cores} CPUs."
    names = ("data.prelearners", "compute.learners")
    changes = [f"{name}={better}" for name, better, number in zip(names, best, now, strict=True) if better != number]
    return f"{' and '.join(changes)} would take about {100 * costs.seconds(best) / took_seconds:.0f} % as long."
