"""Several learners: actors that start together, join a Torch process group, and restart if one is lost.

Ray Train does this too, but starts six more processes beside its learners, which took twice the time of all else.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import socket
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import ray
import torch
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from offline_core.data.store.location import Location
from offline_core.errors import LearnersLostError, first_line
from offline_core.learning.config import ComputeConfig
from offline_core.learning.costs import Costs
from offline_core.learning.learning_from_log import learn_from_log
from offline_core.learning.metrics import MetricsTail
from offline_core.learning.pool import check_can_be_sent, check_resource
from offline_core.learning.result import TrainingResult
from offline_core.learning.run import Run
from offline_core.learning.trainer import OtherLearnerError
from offline_core.runtime.progress import Bar, progress
from offline_core.runtime.ray_session import fetch

SECONDS_BETWEEN_LOOKS, SECONDS_BETWEEN_LOOKS_FAR = 1.0, 15.0
"""At the metrics, for observers and the progress bar: on a disk, and on storage where each look is a request."""

PLACEMENT_SECONDS = 60.0
"""Learners without resources for so long count as lost: in a cluster that shrank they would wait for ever."""

GROUP_TIMEOUT = timedelta(minutes=30)
"""How long learners wait for each other: the first one alone reports, saves and evaluates."""

log = logging.getLogger(__name__)


def learn_together(run: Run, costs: Costs | None, *, start: float) -> TrainingResult:
    """Train with `compute.learners` processes, each of which reads its own shards; see `learn_from_log`.

    Raises:
        ConfigError: Ray does not have the CPUs or GPUs, or there are more learners than shards.
        LearnersLostError: Learners were lost, or not placed, more than `compute.max_failures` times.
        OfflineError: As `learn_from_log` does.
    """
    compute = run.config.compute
    for name, amount in (("CPU", compute.cpus_per_learner), ("GPU", compute.gpus_per_learner)):
        remedy = f"Lower compute.learners or compute.{name.lower()}s_per_learner"
        check_resource(f"{compute.learners} learners", compute.processes * amount, name, remedy)
    check_can_be_sent(run.source.pipeline)
    run.shards(0, compute.processes)
    run = replace(run, output=Location.of(run.output).uri)  # learners on other nodes have other working directories
    tail = MetricsTail(Location.of(run.output))
    with progress(run.total_updates, what="train", unit="update") as bar:
        for failures in itertools.count(1):
            try:
                return _learned(run, costs, tail, bar, start=start)
            except (ray.exceptions.RayError, TimeoutError) as error:
                if failures > compute.max_failures:
                    raise LearnersLostError(
                        f"Learners were lost, or not placed, more than {compute.max_failures} times; the last time: {error}. "
                        "To resume from the last state, train again with the same parameters and the output "
                        f"{run.output}."
                    ) from error
                reason = getattr(error, "cause", None) or error
                log.warning("Learners were lost (%s); they resume from the last state.", first_line(reason))
    raise AssertionError


def _learned(run: Run, costs: Costs | None, tail: MetricsTail, bar: Bar, *, start: float) -> TrainingResult:
    """Run one group of learners to the end of the run, or of the group.

    Raises:
        OfflineError: Of the data or of a learner; it would occur again.
        RayError: A learner was lost, or raised an error that may pass.
        TimeoutError: The learners were not placed.
    """
    compute = run.config.compute
    with contextlib.ExitStack() as stack:
        room = placement_group([_share(compute)] * compute.processes, strategy=compute.placement)
        stack.callback(_release, remove_placement_group, room)
        try:
            ray.get(room.ready(), timeout=PLACEMENT_SECONDS)
        except ray.exceptions.GetTimeoutError:
            wanted = f"{compute.processes} learners of {_share(compute)}"
            raise TimeoutError(f"Ray did not place {wanted} within {PLACEMENT_SECONDS:g} s") from None
        learners = []
        for rank in range(compute.processes):
            here = PlacementGroupSchedulingStrategy(room, placement_group_bundle_index=rank)
            options = {"num_cpus": compute.cpus_per_learner, "num_gpus": compute.gpus_per_learner, "scheduling_strategy": here}
            learners.append(ray.remote(LearnerProcess).options(**options).remote(rank, compute))
            stack.callback(_release, ray.kill, learners[-1])
        address = fetch(learners[0].rendezvous.remote()) if len(learners) > 1 else None
        return _awaited([learner.learn.remote(run, address, costs, start) for learner in learners], tail, bar)


def _release(end: Callable[[Any], object], what: Any) -> None:
    """End it, unless Ray itself is lost."""
    with contextlib.suppress(ray.exceptions.RayError):
        end(what)


def _awaited(learned: list[Any], tail: MetricsTail, bar: Bar) -> TrainingResult:
    """Return the result of the first learner once all have ended, or raise the first error of a learner or an observer."""
    results: dict[Any, Any] = {}
    other: OtherLearnerError | None = None
    seconds = SECONDS_BETWEEN_LOOKS if tail.is_local else SECONDS_BETWEEN_LOOKS_FAR
    while len(results) < len(learned):
        ended, _ = ray.wait([ref for ref in learned if ref not in results], timeout=seconds)
        tail.tell()
        bar.to(tail.updates)
        for done in ended:
            results[done] = None
            try:
                results[done] = fetch(done)
            except OtherLearnerError as error:  # the learner that it names raises its own error
                other = error
    if other is not None:
        raise other
    return results[learned[0]]  # type: ignore[no-any-return]


def _share(compute: ComputeConfig) -> dict[str, float]:
    """Return what Ray reserves for one learner."""
    return {"CPU": compute.cpus_per_learner} | ({"GPU": compute.gpus_per_learner} if compute.gpus_per_learner else {})


class LearnerProcess:
    """An actor that learns, one of `compute.processes` in a Torch process group."""

    def __init__(self, rank: int, compute: ComputeConfig) -> None:
        self._rank, self._world = rank, compute.processes
        self._backend = "nccl" if compute.gpus_per_learner else "gloo"
        self._store: Any = None
        """Of the process group, on the first learner's node."""

    def rendezvous(self) -> tuple[str, int]:
        """Listen for the other learners on this node's own address only; return it with the port."""
        host = str(ray.util.get_node_ip_address())
        listening = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        port = int(listening.getsockname()[1])
        self._store = TCPStore(
            host, port, is_master=True, wait_for_workers=False, timeout=GROUP_TIMEOUT, master_listen_fd=listening.detach()
        )
        return host, port

    def learn(self, run: Run, address: tuple[str, int] | None, costs: Costs | None, start: float) -> TrainingResult | None:
        """See `learn_from_log`. The process group stays until this process ends: leaving it is an error for the others."""
        if address is not None:
            store = self._store or TCPStore(*address, is_master=False, timeout=GROUP_TIMEOUT)
            torch.distributed.init_process_group(
                self._backend, store=store, rank=self._rank, world_size=self._world, timeout=GROUP_TIMEOUT
            )
        with contextlib.ExitStack() as stack:
            for source in run.read:
                stack.enter_context(source.reading())
            return learn_from_log(run, run.networks(), costs=costs, start=start, rank=self._rank, world=self._world)
