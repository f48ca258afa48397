"""Several learners: Ray Train starts them, joins them to a process group, and starts them again if one is lost."""

from __future__ import annotations

import contextlib
import json
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import ray
import torch
from ray.train import FailureConfig, RunConfig, ScalingConfig, get_context
from ray.train.torch import TorchConfig, TorchTrainer
from tqdm import tqdm

from offline_core.errors import ConfigError, LearningError, OfflineError
from offline_core.learning.config import ComputeConfig
from offline_core.learning.feed import Feed, ReadSoFar
from offline_core.learning.result import TrainingResult
from offline_core.learning.run import Run, feed_of, held_out_feed_of, learn
from offline_core.learning.steps import Steps
from offline_core.ray_session import fetch
from offline_core.storage.location import Location


def learn_together(run: Run, *, start: float) -> TrainingResult:
    """Trains with `compute.learners` processes that all see the same global batches; see `learn`.

    Raises:
        ConfigError: Ray does not have the CPUs or GPUs.
        LearningError: learners were lost more often than `compute.max_failures`; the last state is whole.
        OfflineError: as `learn` does.
    """
    compute = run.config.compute
    _check_resources(compute)
    feeder = ray.remote(num_cpus=0, max_restarts=compute.max_failures, max_task_retries=-1)(Feeder).remote(run)
    fetch(feeder.chunk.remote(0, 0))  # errors of the data are the user's, not a lost learner
    with tempfile.TemporaryDirectory(prefix="offline-train-") as scratch:  # Ray Train's own files, none of them ours
        trainer = TorchTrainer(
            _learner,
            train_loop_config={"run": run, "feeder": feeder, "start": start},
            scaling_config=_scaling(compute),
            run_config=RunConfig(
                name="learners", storage_path=scratch, failure_config=FailureConfig(max_failures=compute.max_failures)
            ),
            torch_config=TorchConfig(backend="nccl" if compute.gpus_per_learner else "gloo"),
        )
        try:
            with _progress(run):
                outcome = trainer.fit().return_value
        except Exception as error:
            raise LearningError(
                f"Learners were lost more than {compute.max_failures} times; the last time: {error}. The training can go on "
                f"from its last state: call it again with the same parameters and the output {run.output}."
            ) from error
    if isinstance(outcome, OfflineError):
        raise outcome
    return outcome  # type: ignore[no-any-return]


def _check_resources(compute: ComputeConfig) -> None:
    resources = ray.cluster_resources()
    for name, each in (("CPU", compute.cpus_per_learner), ("GPU", compute.gpus_per_learner)):
        if (wanted := compute.learners * each) > (there := resources.get(name, 0.0)):
            raise ConfigError(
                f"{compute.learners} learners want {wanted:g} {name}s, but Ray has {there:g}: they would never start. Lower "
                f"compute.learners or compute.{name.lower()}s_per_learner."
            )


@contextlib.contextmanager
def _progress(run: Run) -> Iterator[None]:
    """A bar in this process, moved by the records that the first learner writes."""
    ended = threading.Event()
    records = Location.of(run.output).child("metrics.jsonl")

    def watch() -> None:
        with tqdm(total=run.total_updates, desc="train", unit="update", disable=None) as bar:
            while not bar.disable and not ended.wait(1.0):
                if records.is_file() and (lines := records.read().splitlines()):
                    bar.update(json.loads(lines[-1])["updates"] - bar.n)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _scaling(compute: ComputeConfig) -> ScalingConfig:
    resources = {"CPU": compute.cpus_per_learner}
    if compute.gpus_per_learner:
        resources["GPU"] = compute.gpus_per_learner
    return ScalingConfig(
        num_workers=compute.learners,
        use_gpu=bool(compute.gpus_per_learner),
        resources_per_worker=resources,
        placement_strategy=compute.placement,
    )


def _learner(settings: dict[str, Any]) -> TrainingResult | OfflineError | None:
    """Runs in each learner. An error of ours is a result: it would come again, so nothing is started anew for it."""
    context = get_context()
    run: Run = settings["run"]
    try:
        return learn(
            run,
            SharedFeed(settings["feeder"], "chunk"),
            None if run.held_out is None else SharedFeed(settings["feeder"], "held_out_chunk"),
            start=settings["start"],
            rank=context.get_world_rank(),
            world=context.get_world_size(),
        )
    except OfflineError as error:
        return error


class Feeder:
    """An actor that reads for all learners: each chunk is put into the object store once, and mapped by each of them."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._feed: Feed | None = None
        self._chunks: dict[int, Iterator[Steps]] = {}
        self._stored: dict[tuple[int, int], Any] = {}
        self._ends: dict[int, int] = {}  # chunks of the epochs that have been read

    def chunk(self, epoch: int, number: int) -> Any:
        """[reference to the chunk], or None after the last of the epoch."""
        self._feed = self._feed or feed_of(self._run)  # not when it is made: an error then would not come out as it is
        if self._feed.resident:
            epoch = 0
        if (epoch, number) not in self._stored and number < self._ends.get(epoch, number + 1):
            self._read_until(epoch, number)
        return self._stored.get((epoch, number))

    def held_out_chunk(self, epoch: int, number: int) -> Any:
        """As `chunk`, of the data that is held out."""
        if number:
            return None
        feed = held_out_feed_of(self._run) if (-1, 0) not in self._stored else None
        if feed is not None:
            self._stored[-1, 0] = [_put(next(feed.chunks(0)))]
        return self._stored[-1, 0]

    def _read_until(self, epoch: int, number: int) -> None:
        assert self._feed is not None
        read = [key[1] for key in self._stored if key[0] == epoch]
        if epoch not in self._chunks or (read and number <= max(read)):  # anew, for somebody who starts in the middle
            self._chunks, read = {epoch: self._feed.chunks(epoch)}, []
        for n in range(max(read, default=-1) + 1, number + 1):
            steps = next(self._chunks[epoch], None)
            if steps is None:
                self._ends[epoch] = n
                return
            kept = {key: value for key, value in self._stored.items() if key[0] == -1 or key >= (epoch, n - 1)}
            self._stored = kept | {(epoch, n): [_put(steps)]}


class SharedFeed:
    """What a `Feeder` reads, as seen by one learner."""

    resident = False

    def __init__(self, feeder: Any, method: str) -> None:
        self.read = ReadSoFar()
        self._next = getattr(feeder, method)
        self._last: tuple[Any, Steps] | None = None

    def chunks(self, epoch: int) -> Iterator[Steps]:
        number = 0
        while (found := fetch(self._next.remote(epoch, number))) is not None:
            if self._last is None or self._last[0] != found[0]:
                self._last = (found[0], _taken(ray.get(found[0])))
            yield self._last[1]
            number += 1


def _put(steps: Steps) -> Any:
    return ray.put({name: tensor.numpy() for name, tensor in steps.parts.items()})


def _taken(arrays: dict[str, np.ndarray]) -> Steps:
    import warnings

    with warnings.catch_warnings():  # the object store's memory may not be written to, and is not
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable", category=UserWarning)
        return Steps.of({name: torch.from_numpy(array) for name, array in arrays.items()})
