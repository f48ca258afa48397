"""Several learners: actors that start together, join a process group of Torch, and start again if one is lost.

Ray Train would do this too; beside its learners it starts six processes of its own, which took twice the time of all else.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
import ray
import torch
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from offline_core.errors import ConfigError, LearnersLostError, StorageError, first_line
from offline_core.learning.config import ComputeConfig
from offline_core.learning.feed import Feed, ReadSoFar
from offline_core.learning.loop import OtherLearnerError
from offline_core.learning.mapping import check_can_be_sent
from offline_core.learning.metrics import METRICS_FILE
from offline_core.learning.result import TrainingResult
from offline_core.learning.run import Run, feed_of, held_out_feed_of, learn
from offline_core.learning.steps import Steps
from offline_core.progress import progress
from offline_core.ray_session import fetch
from offline_core.storage.location import Location

SECONDS_BETWEEN_LOOKS, SECONDS_BETWEEN_LOOKS_FAR = 1.0, 15.0
"""At the records, for the progress bar; on a disk, and where each look is a request that costs."""

ROOM_SECONDS = 60.0
"""Learners that find no room for so long count as lost: a cluster that has shrunk would let them wait for ever."""

PATIENCE = timedelta(minutes=30)
"""Of learners with the first one, which alone reports, saves and evaluates."""

log = logging.getLogger(__name__)


def learn_together(run: Run, *, start: float) -> TrainingResult:
    """Trains with `compute.learners` processes that all see the same global batches; see `learn`.

    The feeder with its data is on the node of this process, so that losing any other node is no more than losing the
    learners on it.

    Raises:
        ConfigError: Ray does not have the CPUs or GPUs.
        LearnersLostError: learners were lost, or found no room, more than `compute.max_failures` times.
        OfflineError: as `learn` does.
    """
    compute = run.config.compute
    _check_resources(compute)
    check_can_be_sent(run.source.pipeline)
    run = replace(run, output=Location.of(run.output).uri)  # on other nodes, learners have other working directories
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    feeder = ray.remote(num_cpus=0, max_restarts=compute.max_failures, max_task_retries=-1, scheduling_strategy=here)(
        Feeder
    ).remote(run)
    fetch(feeder.chunk.remote(0, 0))  # errors of the data are no lost learner; and reading may want what learners will take
    with _progress(run):
        for failures in itertools.count(1):
            try:
                return _learned(run, feeder, start=start)
            except (ray.exceptions.RayError, TimeoutError) as error:
                if failures > compute.max_failures:
                    raise LearnersLostError(
                        f"Learners were lost, or found no room, more than {compute.max_failures} times; the last time: "
                        f"{error}. The training can go on from its last state: call it again with the same parameters and "
                        f"the output {run.output}."
                    ) from error
                reason = getattr(error, "cause", None) or error
                log.warning("Learners were lost (%s); they go on from the last state.", first_line(reason))
    raise AssertionError


def _learned(run: Run, feeder: Any, *, start: float) -> TrainingResult:
    """One group of learners, from their start to the end of the run or of the group.

    Raises:
        OfflineError: of the data or of a learner; it would come again.
        RayError: a learner was lost, or what it raised may pass.
        TimeoutError: there was no room for the learners.
    """
    compute = run.config.compute
    with contextlib.ExitStack() as stack:
        room = placement_group([_share(compute)] * compute.processes, strategy=compute.placement)
        stack.callback(_given_up, remove_placement_group, room)
        try:
            ray.get(room.ready(), timeout=ROOM_SECONDS)
        except ray.exceptions.GetTimeoutError:
            wanted = f"{compute.processes} learners of {_share(compute)}"
            raise TimeoutError(f"no room for {wanted} within {ROOM_SECONDS:g} s") from None
        learners = []
        for rank in range(compute.processes):
            here = PlacementGroupSchedulingStrategy(room, placement_group_bundle_index=rank)
            options = {"num_cpus": compute.cpus_per_learner, "num_gpus": compute.gpus_per_learner, "scheduling_strategy": here}
            learners.append(ray.remote(LearnerProcess).options(**options).remote(rank, compute))
            stack.callback(_given_up, ray.kill, learners[-1])
        place = fetch(learners[0].meeting_place.remote()) if len(learners) > 1 else None
        return _awaited([learner.learn.remote(run, feeder, place, start) for learner in learners])


def _given_up(end: Callable[[Any], object], what: Any) -> None:
    """Ends it, unless Ray itself is lost."""
    with contextlib.suppress(ray.exceptions.RayError):
        end(what)


def _awaited(learned: list[Any]) -> TrainingResult:
    """What the first learner returns, once all have ended; or the first error that is a learner's own."""
    results: dict[Any, Any] = {}
    other: OtherLearnerError | None = None
    while len(results) < len(learned):
        [done], _ = ray.wait([each for each in learned if each not in results])
        results[done] = None
        try:
            results[done] = fetch(done)
        except OtherLearnerError as error:  # the one that it speaks of has an error of its own
            other = error
    if other is not None:
        raise other
    return results[learned[0]]  # type: ignore[no-any-return]


def _check_resources(compute: ComputeConfig) -> None:
    resources = ray.cluster_resources()
    for name, each in (("CPU", compute.cpus_per_learner), ("GPU", compute.gpus_per_learner)):
        if (wanted := compute.processes * each) > (there := resources.get(name, 0.0)):
            raise ConfigError(
                f"{compute.learners} learners want {wanted:g} {name}s, but Ray has {there:g}: they would never start. Lower "
                f"compute.learners or compute.{name.lower()}s_per_learner."
            )


@contextlib.contextmanager
def _progress(run: Run) -> Iterator[None]:
    """A bar in this process, moved by the records that the first learner writes."""
    ended = threading.Event()
    records = Location.of(run.output).child(METRICS_FILE)
    bar = progress(run.total_updates, what="train", unit="update")  # not in the thread, which knows of no observers
    seconds = SECONDS_BETWEEN_LOOKS if records.is_local else SECONDS_BETWEEN_LOOKS_FAR

    def look() -> None:
        with contextlib.suppress(StorageError):  # there are none yet; or it is what the learners tell, if it lasts
            if lines := records.read().splitlines():
                bar.to(json.loads(lines[-1])["updates"])

    def watch() -> None:
        while not ended.wait(seconds):
            look()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    with contextlib.ExitStack() as stack:
        for end in (bar.close, watcher.join, ended.set):  # the last one first
            stack.callback(end)
        yield
        ended.set()
        watcher.join()
        look()


def _share(compute: ComputeConfig) -> dict[str, float]:
    """What Ray reserves for one learner."""
    return {"CPU": compute.cpus_per_learner} | ({"GPU": compute.gpus_per_learner} if compute.gpus_per_learner else {})


class LearnerProcess:
    """An actor that learns, one of `compute.processes`; they average their gradients in a process group of Torch."""

    def __init__(self, rank: int, compute: ComputeConfig) -> None:
        self._rank, self._world = rank, compute.processes
        self._backend = "nccl" if compute.gpus_per_learner else "gloo"
        self._store: Any = None
        """Of the process group, on the first learner's node."""

    def meeting_place(self) -> tuple[str, int]:
        """Address and port at which the learners find each other, on this node's own address only; of the first learner."""
        host = str(ray.util.get_node_ip_address())
        listening = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        port = int(listening.getsockname()[1])
        self._store = TCPStore(
            host, port, is_master=True, wait_for_workers=False, timeout=PATIENCE, master_listen_fd=listening.detach()
        )
        return host, port

    def learn(self, run: Run, feeder: Any, place: tuple[str, int] | None, start: float) -> TrainingResult | None:
        """See `learn`. The process group is left to the end of this process: to leave it would be an error to the others."""
        if place is not None:
            store = self._store or TCPStore(*place, is_master=False, timeout=PATIENCE)
            torch.distributed.init_process_group(
                self._backend, store=store, rank=self._rank, world_size=self._world, timeout=PATIENCE
            )
        return learn(
            run,
            SharedFeed(feeder, "chunk"),
            None if run.held_out is None else SharedFeed(feeder, "held_out_chunk"),
            start=start,
            rank=self._rank,
            world=self._world,
        )


class Chunk(NamedTuple):
    """A chunk of steps in the object store."""

    steps: Any
    """Reference to its parts."""
    resident: bool
    """It is all there is."""
    read: ReadSoFar
    """By the feeder, up to now."""


class Feeder:
    """An actor that reads for all learners: each chunk is put into the object store once, and mapped by each of them."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._feed: Feed | None = None
        self._whole: Chunk | None = None
        """Of a resident feed."""
        self._coming: Iterator[Steps] = iter(())
        self._next = (-1, 0)
        """(epoch, number) of the chunk that is coming."""
        self._stored: dict[tuple[int, int], Chunk] = {}
        """The last two chunks, for learners may be one apart."""
        self._ends: dict[int, int] = {}
        """Chunks of the epochs that were read to their end."""
        self._held_out: Chunk | None = None

    def chunk(self, epoch: int, number: int) -> Chunk | None:
        """None after the last of the epoch."""
        if self._whole is not None:
            return self._whole if number == 0 else None
        if self._feed is None:
            self._feed = feed_of(self._run)  # not when this is made: an error then would not come out as it is
        if self._feed.resident:
            self._whole = _whole(self._feed)
            self._feed = None  # it is in the object store now, and need not be here as well
            return self.chunk(epoch, number)
        if (epoch, number) in self._stored or number >= self._ends.get(epoch, number + 1):
            return self._stored.get((epoch, number))
        if epoch != self._next[0] or number < self._next[1]:
            self._coming, self._next = self._feed.chunks(epoch, number), (epoch, number)
        while self._next <= (epoch, number):
            try:
                steps = next(self._coming, None)
            except BaseException:
                self._next = (-1, 0)  # whoever asks again gets the error again, and not the end of an epoch
                raise
            if steps is None:
                self._ends[epoch] = self._next[1]
                return None
            found = Chunk(_put(steps), resident=False, read=self._feed.read)
            self._stored = dict([*self._stored.items()][-1:]) | {self._next: found}
            self._next = (epoch, self._next[1] + 1)
        return self._stored[epoch, number]

    def held_out_chunk(self, epoch: int, number: int) -> Chunk | None:
        """As `chunk`, of the data that is held out: all of it."""
        if self._held_out is None and (feed := held_out_feed_of(self._run)) is not None:
            self._held_out = _whole(feed)
        return self._held_out if number == 0 else None


class SharedFeed:
    """What a `Feeder` reads, as seen by one learner."""

    def __init__(self, feeder: Any, method: str) -> None:
        self.resident, self.read = False, ReadSoFar()  # until there is a chunk
        self._next = getattr(feeder, method)
        self._last: tuple[Any, Steps] | None = None

    def chunks(self, epoch: int, first: int = 0) -> Iterator[Steps]:
        number = first
        while (found := fetch(self._next.remote(epoch, number))) is not None:
            self.resident, self.read = found.resident, found.read
            if self._last is None or self._last[0] != found.steps:
                self._last = (found.steps, _taken(ray.get(found.steps)))
            yield self._last[1]
            number += 1


def _whole(feed: Feed) -> Chunk:
    """The one chunk of a resident feed."""
    return Chunk(_put(next(feed.chunks(0))), resident=True, read=feed.read)


def _put(steps: Steps) -> Any:
    return ray.put({name: tensor.numpy() for name, tensor in steps.parts.items()})


def _taken(arrays: dict[str, np.ndarray]) -> Steps:
    import warnings

    with warnings.catch_warnings():  # the object store's memory may not be written to, and is not
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable", category=UserWarning)
        return Steps.of({name: torch.from_numpy(array) for name, array in arrays.items()})
