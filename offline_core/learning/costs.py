"""What a training costs: predicted from a short measurement before it, and told in words after it.

Predictions are wall-clock seconds on the cores at hand. They compare choices, and do not promise how long a training takes,
which may end long before its last epoch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import psutil
import torch

from offline_core.learning.config import TrainingConfig
from offline_core.learning.prelearner.mapper import ReadSoFar
from offline_core.learning.shards import SHARDS
from offline_core.runtime.ray_session import local_cpus, local_object_store_bytes, ray_is_up

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

    @property
    def updates(self) -> float:
        """Of all epochs."""
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

    every = [Processes(*numbers) for numbers in product(readers, learners)]
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


@dataclass(slots=True)
class Seconds:
    """The time of a learner by what it did."""

    wait: float = 0.0
    """For the next window of steps."""
    gather: float = 0.0
    """Batches out of the window."""
    update: float = 0.0
    """Networks and optimiser, value targets included."""
    pause: float = 0.0
    """Reports, checkpoints, held-out loss."""

    @property
    def all(self) -> float:
        return self.wait + self.gather + self.update + self.pause

    def since(self, other: Seconds) -> Seconds:
        """Return what came after `other`."""
        return Seconds(self.wait - other.wait, self.gather - other.gather, self.update - other.update, self.pause - other.pause)


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
    sentences = [f"Learned {steps / learning:,.0f} steps/s, waiting {seconds.wait / learning:.0%} of that time"]
    if read.seconds:
        learners = config.compute.processes
        reader = f"One of {learners} learners read" if learners > 1 else "Read"
        speed = f"{read.steps / read.seconds:,.0f} steps/s ({read.bytes / read.seconds / 1e6:,.0f} MB/s)"
        sentences.insert(0, f"{reader} and laid out {speed}")
    sentences.append(f"{took / max(all_seconds, 1e-9):.0%} of all time went into {name}: {remark}")
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
    return f"{' and '.join(changes)} would take about {costs.seconds(best) / took_seconds:.0%} as long."
