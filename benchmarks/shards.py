"""How learning scales with learners: what each reads and holds, whether batches stay the same, how fast they learn together.

    python -m benchmarks.shards [--steps 4000000] [--parts equal,bytes,memory,feed,nodes] [--folder runs/shards]

Learners are processes of this machine with one thread each, in a gloo process group, without Ray; `nodes` is a whole training
on two Ray nodes that are started here. Run on a quiet machine of two cores or more. The dataset in `--folder` is made once.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.data import write_recording
from benchmarks.figure import figure

OBSERVATION, ACTION = 17, 6
"""Numbers of a step, as HalfCheetah has them."""
LEARNERS = (1, 2, 3, 4, 8)
BATCHES = 100
"""First and last global batches that are compared."""
BATCH_STEPS = 8192
UPDATES, ROUNDS = 12, 5
STREAMED = {"resident_bytes": 0}
SETTINGS: dict[str, Any] = {
    "network": {"hidden_sizes": [256, 256], "bounded_mean": True, "fixed_std": 1.0},
    "optimizer": {"batch_size": BATCH_STEPS},
    "evaluation": {"play": False},
    "data": {"prelearners": 0},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=4_000_000)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--folder")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="offline-bench-") as root:
        dataset = os.path.abspath(f"{arguments.folder or root}/{arguments.steps}")
        if not os.path.exists(f"{dataset}/_versions/000001.json"):
            import gymnasium as gym

            box = gym.spaces.Box(-np.inf, np.inf, (OBSERVATION,), np.float32), gym.spaces.Box(-1, 1, (ACTION,), np.float32)
            write_recording(dataset, arguments.steps, format="table", spaces=box)
        for part in arguments.parts.split(","):
            PARTS[part](dataset)


def run_of(dataset: str, **settings: Any) -> Any:
    from offline_core.data.datasets.dataset import open_dataset
    from offline_core.learning.config import TrainingConfig
    from offline_core.learning.run import Run
    from offline_core.learning.source import Recorded
    from offline_core.runtime.config import parse

    config = parse(TrainingConfig, SETTINGS | {name: SETTINGS.get(name, {}) | values for name, values in settings.items()})
    run = Run(config, Recorded.of(open_dataset(dataset), config.data), None, None, None, "")
    return replace(run, streamed=config.data.resident_bytes == 0)


def together(world: int, work: Callable[..., Any], *arguments: Any, **settings: Any) -> list[Any]:
    """What `work(run, rank, world, *arguments)` returns in so many processes."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(world, mp_context=context) as pool:
        jobs = [(rank, world, f"{folder}/store", work, arguments, settings) for rank in range(world)]
        return list(pool.map(_learner, jobs))


def _learner(job: tuple[int, int, str, Callable[..., Any], Any, dict[str, Any]]) -> Any:
    import torch

    rank, world, store, work, (dataset, *arguments), settings = job
    warnings.simplefilter("ignore", FutureWarning)
    torch.set_num_threads(1)
    if world > 1:
        torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    return work(run_of(dataset, **settings), rank, world, *arguments)


def learner_of(run: Any, rank: int, world: int) -> Any:
    from offline_core.learning.learner import Learner

    return Learner(run.networks(), run.config, total_steps=10**9, rank=rank, world=world)


def loader_of(run: Any, rank: int, world: int) -> Any:
    from offline_core.learning import data_loader

    return data_loader.loader_of(run, rank=rank, world=world)


def batches(learner: Any, loader: Any, epoch: int) -> Iterator[Any]:
    """This learner's share of all global batches of an epoch."""
    for window, steps in enumerate(loader.windows(epoch)):
        learner.load(steps)
        for _, batch in learner.batches(epoch, window):
            yield batch


def equal(dataset: str) -> None:
    """The first and last global batches of an epoch, by digests that do not depend on who holds which step."""
    for name, data in (("in memory", {}), ("streamed", STREAMED)):
        digests_by_world = {world: together(world, _digests, dataset, data=data)[0] for world in LEARNERS}
        same = all(digests == digests_by_world[1] for digests in digests_by_world.values())
        figure(
            "shards.batches.equal", float(same), "1: yes", learners=[0, *LEARNERS], data=name, batches=len(digests_by_world[1])
        )


def _digests(run: Any, rank: int, world: int) -> list[tuple[int, int]]:
    """(steps, sum of the steps' hashes) of batches; without learners and with one are the same code."""
    import torch

    from offline_core.learning.together import summed

    learner, loader = learner_of(run, rank, world), loader_of(run, rank, world)
    factors = torch.from_numpy(np.random.default_rng(0).integers(1, 2**62, OBSERVATION) | 1)
    digests: list[tuple[int, int]] = []
    for batch in batches(learner, loader, 0):
        hashes = learner._steps.columns["obs"][batch.indices].contiguous().view(torch.int32).long() @ factors
        hashes = (hashes ^ (hashes >> 29)) * factors[0]
        digests.append((batch.steps, int(summed(hashes.sum()[None]))))
        if len(digests) > 2 * BATCHES:
            del digests[BATCHES]
    return digests


def read_bytes(dataset: str) -> None:
    """What a learner reads of an epoch, by its calls of the operating system."""
    from offline_core.data.datasets.dataset import open_dataset

    stored = open_dataset(dataset).ref.bytes
    whole = together(1, _read, dataset, data=STREAMED)[0]
    for world in (1, 2, 4):
        read = together(world, _read, dataset, data=STREAMED)
        fields = {"learners": world, "bytes": max(read), "ratio_to_dataset": round(max(read) * world / stored, 3)}
        figure("shards.bytes_read.ratio", max(read) * world / whole, "of what one learner reads / N", **fields)


def _read(run: Any, rank: int, world: int) -> int:
    learner, loader = learner_of(run, rank, world), loader_of(run, rank, world)
    before = psutil.Process().io_counters().read_chars
    for _ in batches(learner, loader, 0):
        pass
    return int(psutil.Process().io_counters().read_chars - before)


def memory(dataset: str) -> None:
    """The peak of a learner with data in memory: beyond what it has before it reads, and of the whole process."""
    alone, alone_whole = together(1, _peak, dataset)[0]
    for world in (2, 4):
        peaks, wholes = zip(*together(world, _peak, dataset), strict=True)
        fields = {"learners": world, "bytes": max(peaks), "bytes_of_one": alone}
        figure("shards.memory.ratio", max(peaks) / alone, "of one learner", **fields)
        figure("shards.memory.process.ratio", max(wholes) / alone_whole, "of one learner", learners=world, bytes=max(wholes))


def _peak(run: Any, rank: int, world: int) -> tuple[int, int]:
    process = psutil.Process()
    learner = learner_of(run, rank, world)
    before = process.memory_info().rss
    for batch in islice(batches(learner, loader_of(run, rank, world), 0), 10):
        learner.update(batch.indices, batch)
    peak = int(next(line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line).split()[1]) * 1024
    return peak - before, peak


def feed(dataset: str) -> None:
    """Updates fed by shards, against the same on batches that lie ready; and two learners against one."""
    rates = {}
    for name, data in (("in memory", {}), ("streamed", STREAMED)):
        for world in (1, 2):
            fed, ready = together(world, _rates, dataset, data=data)[0]
            fields = {"learners": world, "data": name, "steps_per_second": round(fed), "batch_size": BATCH_STEPS}
            figure("shards.feed.ratio", fed / ready, "of the in-memory loop", **fields)
            rates[name, world] = fed
        figure("shards.speedup.2", rates[name, 2] / rates[name, 1], "of one learner", data=name, batch_size=BATCH_STEPS)


def _rates(run: Any, rank: int, world: int) -> tuple[float, float]:
    """Medians of steps per second: fed, and from memory, in turns."""
    learner, loader = learner_of(run, rank, world), loader_of(run, rank, world)
    first = list(islice(batches(learner, loader, 0), UPDATES))
    held, lying = learner._steps, [learner._steps.batch(batch.indices, learner.spec) for batch in first]

    def epochs() -> Iterator[Any]:
        epoch = 1
        while True:
            yield from batches(learner, loader, epoch)
            epoch += 1

    fed: dict[str, list[float]] = {"fed": [], "ready": []}
    feeding = epochs()
    for _ in range(ROUNDS):
        begin, steps = time.perf_counter(), 0
        for batch in islice(feeding, UPDATES):
            learner.update(batch.indices, batch)
            steps += batch.steps
        fed["fed"].append(steps / (time.perf_counter() - begin))
        begin = time.perf_counter()
        for batch, columns in zip(first, lying, strict=True):
            learner.update_on(columns, batch.steps)
        fed["ready"].append(sum(batch.steps for batch in first) / (time.perf_counter() - begin))
    del held
    return statistics.median(fed["fed"]), statistics.median(fed["ready"])


def nodes(dataset: str) -> None:
    """A streamed epoch by a learner on each of two Ray nodes: all bytes of the loopback device, Ray's own talk included."""
    from ray.cluster_utils import Cluster

    from offline_core.data.datasets.dataset import open_dataset
    from offline_core.learning.config import TrainingConfig
    from offline_core.learning.train import train
    from offline_core.runtime.config import parse

    data, compute = {"data": SETTINGS["data"] | STREAMED}, {"compute": {"learners": 2, "placement": "SPREAD"}}
    small = {"network": SETTINGS["network"] | {"hidden_sizes": [16]}, "optimizer": {"batch_size": 65_536, "max_epochs": 1}}
    config = parse(TrainingConfig, SETTINGS | small | data | compute)  # whose gradients are few bytes
    node: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 300 * 2**20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    try:
        cluster.add_node(node_ip_address="127.0.0.2", **node)
        os.environ["RAY_ADDRESS"] = cluster.address
        before = psutil.net_io_counters(pernic=True)["lo"].bytes_sent
        with tempfile.TemporaryDirectory() as output:
            result = train(config, dataset=dataset, output=f"{output}/run")
        sent = psutil.net_io_counters(pernic=True)["lo"].bytes_sent - before
    finally:
        cluster.shutdown()
    stored = open_dataset(dataset).ref.bytes
    fields = {"bytes": sent, "dataset_bytes": stored, "steps": result.steps, "updates": result.updates}
    figure("shards.nodes.bytes.ratio", sent / stored, "of the dataset's bytes", **fields)


PARTS: dict[str, Callable[[str], None]] = {
    "equal": equal,
    "bytes": read_bytes,
    "memory": memory,
    "feed": feed,
    "nodes": nodes,
}

if __name__ == "__main__":
    main()
