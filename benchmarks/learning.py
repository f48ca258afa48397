"""How fast learners learn: what the feed costs, MARWIL beside BC, streams larger than Ray's memory, RLlib.

    python -m benchmarks.learning [--rllib FOLDER]

Ratios are of medians measured in alternation in one run; run on a quiet machine. What grows with the number of
learners is in `benchmarks.shards`.

    --rllib FOLDER    RLlib's own recording of CartPole (episode files), to clone from to a return of 450 by both
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.data import write_recording
from benchmarks.figure import figure, seconds
from offline_core.data.datasets.dataset import open_dataset
from offline_core.learning.config import TrainingConfig
from offline_core.learning.data_loader import DataLoader, loader_of
from offline_core.learning.learner import Learner
from offline_core.learning.run import Run
from offline_core.learning.shards import batches
from offline_core.learning.source import Recorded
from offline_core.runtime.config import parse

LARGE: dict[str, Any] = {"network": {"hidden_sizes": [256, 256], "share_layers": True}, "optimizer": {"batch_size": 2048}}
UPDATES = 100
REPEATS = 5
OBJECT_STORE_BYTES = 100 * 2**20
RLLIB_LIMIT_SECONDS = 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rllib", default=None)
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="offline-bench-") as root:
        write_recording(f"{root}/data", 200_000, format="episodes")
        feed_ratio(f"{root}/data")
        marwil_ratio(f"{root}/data")
        stream(root)
        if arguments.rllib:
            against_rllib(root, arguments.rllib)


def made(dataset: str, **settings: Any) -> tuple[Run, DataLoader, Learner]:
    """A learner and its feed."""
    config = parse(TrainingConfig, LARGE | settings)
    source = open_dataset(dataset)
    run = Run(config, Recorded.of(source, config.data), None, None, None, "")
    loader = loader_of(run)
    return run, loader, Learner(run.networks(), config, total_steps=10**9)


def updates(learner: Learner, loader: DataLoader, epoch: int, count: int) -> None:
    """So many updates, from as many epochs as that takes."""
    while count:
        for window, steps in enumerate(loader.windows(epoch)):
            learner.load(steps)
            for _, batch in itertools.islice(learner.batches(epoch, window), count):
                learner.update(batch.indices, batch)
                count -= 1
            if not count:
                break
        epoch += 1
    learner.take_metrics()


def alternately(actions: dict[str, Callable[[], object]], *, repeats: int = REPEATS) -> dict[str, float]:
    """Median seconds of each, measured in turns after one to warm up."""
    took: dict[str, list[float]] = {name: [] for name in actions}
    for repeat in range(repeats + 1):
        for name, action in actions.items():
            spent = seconds(action)
            if repeat:
                took[name].append(spent)
    return {name: statistics.median(values) for name, values in took.items()}


class Ready:
    """Batches that lie ready, in place of steps to gather them from."""

    def __init__(self, learner: Learner, loader: DataLoader) -> None:
        steps = next(iter(loader.windows(0)))
        indices = batches(steps.rows, size=learner.batch_units, seed=0, epoch=0, window=0)
        self.batches = [steps.batch(part, learner.spec) for part in indices]
        self.numbers = [torch.full_like(part, number) for number, part in enumerate(indices)]

    def batch(self, indices: torch.Tensor, reading: object) -> dict[str, torch.Tensor]:
        return self.batches[int(indices[0])]

    def count(self, indices: torch.Tensor, reading: object) -> int:
        return len(indices)


def feed_ratio(dataset: str) -> None:
    """Fed by the pipeline, against the same updates on batches that lie in memory; kept in memory, and streamed."""
    for name, data in (("feed.ratio", {}), ("feed.streaming.ratio", {"resident_bytes": 0, "window_steps": 65_536})):
        _, loader, learner = made(dataset, data=data)
        _, resident, other = made(dataset)
        ready = Ready(other, resident)
        other.load(next(iter(resident.windows(0))))
        other._steps = ready  # type: ignore[assignment]

        def in_memory(other: Learner = other, ready: Ready = ready) -> None:
            for number in range(UPDATES):
                other.update(ready.numbers[number % (len(ready.numbers) - 1)])
            other.take_metrics()

        took = alternately({"fed": partial(updates, learner, loader, 0, UPDATES), "in memory": in_memory})
        rate = UPDATES * 2048 / took["fed"]
        figure(name, took["in memory"] / took["fed"], "of in-memory speed", batch_size=2048, steps_per_second=round(rate))


def marwil_ratio(dataset: str) -> None:
    """Steps per second of MARWIL over those of BC, by λ and by whether policy and value function share their layers."""
    for shared in (True, False):
        for gae_lambda in (1.0, 0.95):
            network = LARGE["network"] | {"share_layers": shared}
            learners = {
                name: made(dataset, algorithm=name, network=network, marwil={"gae_lambda": gae_lambda})[1:]
                for name in ("bc", "marwil")
            }
            count = 2 * UPDATES  # two epochs, so that value targets are computed as often as they would be
            took = alternately({n: partial(updates, u, f, 0, count) for n, (f, u) in learners.items()}, repeats=3)
            fields = {"share_layers": shared, "gae_lambda": gae_lambda}
            rate = round(count * 2048 / took["marwil"])
            figure("marwil.ratio_to_bc", took["bc"] / took["marwil"], "ratio", steps_per_second=rate, **fields)


def stream(root: str) -> None:
    """Training from data one and five times as large as Ray's object store, by two prelearners."""
    for times in (1, 5):
        script = STREAM.format(times=times, object_store_bytes=OBJECT_STORE_BYTES, root=root)
        done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
        measured = json.loads(done.stdout.splitlines()[-1])
        figure("stream.peak_bytes", measured.pop("peak"), "bytes", times_object_store=times, **measured)


STREAM = """
import json, logging, re, time
import gymnasium as gym, numpy as np
from benchmarks.mixtures import write
from offline_core.data.episodes import Episode

SIZE, T = 64, 1000
count = {times} * {object_store_bytes} // (SIZE * 4 * T)
spaces = dict(observation_space=gym.spaces.Box(-np.inf, np.inf, (SIZE,), np.float32), action_space=gym.spaces.Discrete(2))
rng = np.random.default_rng(0)
dataset = "{root}/stream-{times}"
def episode(i):
    obs = rng.standard_normal((T + 1, SIZE), dtype=np.float32)
    return Episode(eps_id=str(i), observations=obs, actions=rng.integers(0, 2, T), rewards=np.ones(T), truncated=True, **spaces)
import subprocess, sys, os
if os.fork() == 0:  # what writing takes is not what training takes
    write(__import__("pathlib").Path(dataset), [episode(i) for i in range(count)])
    os._exit(0)
os.wait()
import ray
quiet = dict(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
ray.init(num_cpus=4, object_store_memory={object_store_bytes}, **quiet)
from offline_core.runtime.config import parse
from offline_core.learning.train import train
config = parse(TrainingConfig, {{
    "network": {{"hidden_sizes": [64]}}, "optimizer": {{"batch_size": 2048, "max_epochs": 1}},
    "data": {{"prelearners": 2, "resident_bytes": 0, "window_steps": 65536}}}})
import threading, psutil
peak, ended = 0, threading.Event()
def watch():
    global peak
    while not ended.wait(0.05):
        peak = max(peak, psutil.Process().memory_info().rss - psutil.Process().memory_info().shared)
threading.Thread(target=watch).start()
start = time.perf_counter()
result = train(config, dataset=dataset, output=dataset + "-out")
took = time.perf_counter() - start
ended.set()
rate = round(result.steps_per_second)
print(json.dumps({{"peak": peak, "steps": result.steps, "seconds": round(took, 2), "steps_per_second": rate}}))
"""


def against_rllib(root: str, folder: str) -> None:
    """Both clone the same files until 450: RLlib as its document has it, each in a process of its own."""
    took = {}
    for name, script in (("ours", OURS), ("theirs", THEIRS)):
        begin = time.perf_counter()
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                script.format(folder=str(Path(folder).absolute()), root=root, limit_seconds=RLLIB_LIMIT_SECONDS),
            ],
            check=True,
            capture_output=True,
            text=True,
        )
        took[name] = time.perf_counter() - begin
        fields = json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1])
        figure(f"bc.{name}.seconds", took[name], "s", **fields)
    figure("bc.ratio_to_rllib", took["theirs"] / took["ours"], "ratio")


OURS = """
import json
from offline_core.runtime.config import parse
from offline_core.learning.train import train
config = parse(TrainingConfig, {{
    "evaluation": {{"environment": {{"id": "CartPole-v1"}}, "target_return": 450}},
    "optimizer": {{"max_epochs": 200, "updates_per_iteration": 100}}}})
result = train(config, dataset="{folder}", output="{root}/ours")
print(json.dumps({{"return": result.metrics["episode_return_mean"], "updates": result.updates}}))
"""
THEIRS = """
import json, math, time
import ray
from ray.rllib.algorithms.bc import BCConfig
ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False, logging_level="ERROR")  # what the document asks for
config = (
    BCConfig()
    .environment(env="CartPole-v1")
    .learners(num_learners=0)
    .training(train_batch_size_per_learner=1024)
    .offline_data(
        input_=["{folder}"], input_read_episodes=True, input_read_batch_size=512,
        map_batches_kwargs={{"concurrency": 2, "num_cpus": 2}}, iter_batches_kwargs={{"prefetch_batches": 2}},
        dataset_num_iters_per_learner=1,
    )
    .evaluation(
        evaluation_interval=3, evaluation_num_env_runners=1, evaluation_duration=5, evaluation_parallel_to_training=True
    )
)
algorithm = config.build()
found, begin, iterations = 0.0, time.perf_counter(), 0
while found < 450 and time.perf_counter() - begin < {limit_seconds}:
    result = algorithm.train()
    iterations += 1
    mean = result.get("evaluation", {{}}).get("env_runners", {{}}).get("episode_return_mean", math.nan)
    found = found if math.isnan(mean) else mean
print(json.dumps({{"return": found, "updates": iterations}}))
"""


if __name__ == "__main__":
    main()
