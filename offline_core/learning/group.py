"""Several learners: Ray Train starts them, joins them to a process group, and starts them again if one is lost."""

from __future__ import annotations

import contextlib
import json
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import ray
import torch
from ray.train import FailureConfig, RunConfig, ScalingConfig, get_context
from ray.train.torch import TorchConfig, TorchTrainer
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from offline_core.errors import ConfigError, LearnersLostError, OfflineError, StorageError
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

ABORT_SECONDS = 5.0


def learn_together(run: Run, *, start: float) -> TrainingResult:
    """Trains with `compute.learners` processes that all see the same global batches; see `learn`.

    What all of them need (the feeder with its data, Ray Train's controller) is on the node of this process, so that losing
    any other node is no more than losing the learners on it.

    Raises:
        ConfigError: Ray does not have the CPUs or GPUs.
        LearnersLostError: learners were lost, or found no room, more than `compute.max_failures` times.
        OfflineError: as `learn` does.
    """
    compute = run.config.compute
    _check_resources(compute)
    check_can_be_sent(run.source.pipeline)
    run = replace(run, output=Location.of(run.output).uri)  # learners have other working directories
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    feeder = ray.remote(num_cpus=0, max_restarts=compute.max_failures, max_task_retries=-1, scheduling_strategy=here)(
        Feeder
    ).remote(run)
    fetch(feeder.chunk.remote(0, 0))  # errors of the data are the user's, not a lost learner
    with tempfile.TemporaryDirectory(prefix="offline-train-") as scratch:  # Ray Train's own files, none of them ours
        trainer = _Trainer(
            _learner,
            train_loop_config={"run": run, "feeder": feeder, "start": start},
            scaling_config=_scaling(compute),
            run_config=RunConfig(name="learners", storage_path=scratch, failure_config=_failures(compute)),
            torch_config=TorchConfig(backend="nccl" if compute.gpus_per_learner else "gloo"),
        )
        try:
            with _progress(run):
                outcome = trainer.fit().return_value
        except KeyboardInterrupt:
            trainer.abort()
            raise
        except Exception as error:
            with contextlib.suppress(ray.exceptions.RayActorError):  # the feeder may be lost as well
                if (failure := fetch(feeder.failure.remote())) is not None:
                    raise failure from None
            raise LearnersLostError(
                f"Learners were lost, or found no room, more than {compute.max_failures} times; the last time: {error}. The "
                f"training can go on from its last state: call it again with the same parameters and the output {run.output}."
            ) from error
    if (failure := fetch(feeder.failure.remote())) is not None:
        raise failure
    return outcome  # type: ignore[no-any-return]


class _Trainer(TorchTrainer):  # type: ignore[misc]
    """Ray's, without its handler of SIGINT, which ends the process as if all were well and stays when the training is over."""

    _controller: Any = None

    def _register_sigint_handler(self, controller: Any) -> None:
        self._controller = controller

    def abort(self) -> None:
        """Ends the learners, if they can still be reached."""
        if self._controller is not None:
            with contextlib.suppress(ray.exceptions.RayError):
                ray.get(self._controller.abort.remote(), timeout=ABORT_SECONDS)


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


def _scaling(compute: ComputeConfig) -> ScalingConfig:
    resources = {"CPU": compute.cpus_per_learner}
    if compute.gpus_per_learner:
        resources["GPU"] = compute.gpus_per_learner
    return ScalingConfig(
        num_workers=compute.processes,
        use_gpu=bool(compute.gpus_per_learner),
        resources_per_worker=resources,
        placement_strategy=compute.placement,
    )


def _failures(compute: ComputeConfig) -> FailureConfig:
    """Learners that find no room for a minute count as lost too: a cluster that has shrunk would let them wait for ever."""
    return FailureConfig(max_failures=compute.max_failures, controller_failure_limit=compute.max_failures)


def _learner(settings: dict[str, Any]) -> TrainingResult | None:
    """Runs in each learner. An error of ours would come again: it is told to the feeder, and nobody starts anew."""
    feeder, context = settings["feeder"], get_context()
    if fetch(feeder.failure.remote()) is not None:
        return None
    run: Run = settings["run"]
    try:
        return learn(
            run,
            SharedFeed(feeder, "chunk"),
            None if run.held_out is None else SharedFeed(feeder, "held_out_chunk"),
            start=settings["start"],
            rank=context.get_world_rank(),
            world=context.get_world_size(),
        )
    except OtherLearnerError:
        raise
    except OfflineError as error:
        fetch(feeder.fail.remote(error))
        raise  # ends the other learners, which may be waiting for this one


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
        self._failure: OfflineError | None = None

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

    def fail(self, error: OfflineError) -> None:
        """The run is over; the first error is the one to see."""
        self._failure = self._failure or error

    def failure(self) -> OfflineError | None:
        return self._failure


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
