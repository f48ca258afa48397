"""What it costs to work in a bucket: recording and training there beside the local disk, and data larger than memory.

    python -m benchmarks.object_storage [--steps 1000000]

The bucket is a server of moto on the loopback, in a process of its own: no network lies between, but a server in Python does.
Ratios are of medians measured in alternation in one run; run on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.data import write_recording
from benchmarks.figure import figure, seconds

REPEATS = 3
EPISODES = 2_000
OBJECT_STORE_BYTES = 100 * 2**20
TIMES = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000_000, help="of the dataset to train on")
    steps = parser.parse_args().steps
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory(prefix="bench-") as root, bucket() as remote:
        places = {"local": root, "s3": remote}
        run_record(places)
        run_train(places, steps)
        stream(root, remote)


@contextmanager
def bucket() -> Iterator[str]:
    """The URI of a new bucket on a server of its own, which this process and its children can use."""
    import boto3

    from tests.e2e.orchestra import free_port

    port = free_port()
    os.environ |= {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
    }
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            name = f"bench-{uuid.uuid4().hex[:8]}"
            client = boto3.client("s3")
            for _ in range(50):
                try:
                    client.create_bucket(Bucket=name)
                    break
                except Exception:
                    time.sleep(0.2)
            yield f"s3://{name}"
        finally:
            server.kill()


def alternately(actions: dict[str, Callable[[int], object]]) -> dict[str, float]:
    """Return the median seconds of each action; the actions take turns, and each is told which turn it is."""
    took: dict[str, list[float]] = {name: [] for name in actions}
    for turn in range(REPEATS):
        for name, action in actions.items():
            took[name].append(seconds(action, turn))
    return {name: statistics.median(durations) for name, durations in took.items()}


def run_record(places: dict[str, str]) -> None:
    """Recording by Ray's actors, which write to the place themselves."""
    from offline_core.learning.experts.config import ExpertConfig
    from offline_core.learning.experts.train import train_expert
    from offline_core.policies.recording.config import RecordingConfig
    from offline_core.policies.recording.record import record
    from offline_core.runtime.config import parse
    from offline_core.runtime.ray_session import ray_scope

    policy = train_expert(
        parse(ExpertConfig, {"evaluation": {"target_return": 200}}), output=f"{places['local']}/expert"
    ).checkpoint
    results: dict[str, Any] = {}

    def recording(root: str, turn: int) -> None:
        config = parse(RecordingConfig, {"episodes": EPISODES, "seed": turn})
        results["result"] = record(config, policy=policy, output=f"{root}/recording-{turn}")

    with ray_scope():
        recording(places["local"], REPEATS)  # Ray is up, and its workers have imported what they need
        took = alternately({name: lambda turn, root=root: recording(root, turn) for name, root in places.items()})
    dataset = results["result"].dataset
    fields = {name: round(duration_seconds, 2) for name, duration_seconds in took.items()}
    figure("s3.record.ratio_to_local", took["local"] / took["s3"], "of local speed", steps=dataset.steps, seconds=fields)


def run_train(places: dict[str, str], steps: int) -> None:
    """One epoch of BC, the reading included, with data kept in memory and with data streamed."""
    from offline_core.learning.config import TrainingConfig
    from offline_core.learning.train import train
    from offline_core.runtime.config import parse

    for name, root in places.items():
        took = seconds(write_recording, f"{root}/data", steps, format="episodes")
        figure(f"s3.write.{name}.seconds", took, "s", steps=steps)
    for kind, data in {"resident": {"prelearners": 0}, "streamed": {"prelearners": 0, "resident_bytes": 0}}.items():
        settings = {"network": {"hidden_sizes": [256, 256]}, "optimizer": {"batch_size": 2048, "max_epochs": 1}, "data": data}
        config = parse(TrainingConfig, settings)

        def training(root: str, turn: int, kind: str = kind, config: TrainingConfig = config) -> None:
            train(config, dataset=f"{root}/data", output=f"{root}/policy-{kind}-{turn}")

        took = alternately({name: lambda turn, root=root: training(root, turn) for name, root in places.items()})
        fields = {name: round(duration_seconds, 2) for name, duration_seconds in took.items()}
        figure("s3.train.ratio_to_local", took["local"] / took["s3"], "of local speed", data=kind, steps=steps, seconds=fields)


def stream(root: str, remote: str) -> None:
    """Training from a bucket that holds `TIMES` as much as Ray's object store: peak memory, and what lies on the disk."""
    write_wide(f"{remote}/wide", TIMES * OBJECT_STORE_BYTES)
    with tempfile.TemporaryDirectory(prefix="b-", dir="/tmp") as scratch:  # Ray's sockets need a short path
        environment = os.environ | {"TMPDIR": scratch, "RAY_TMPDIR": scratch}
        script = STREAM.format(dataset=f"{remote}/wide", object_store_bytes=OBJECT_STORE_BYTES, scratch=scratch)
        done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, env=environment)
    measured = json.loads(done.stdout.splitlines()[-1])
    fields = {"data_bytes": TIMES * OBJECT_STORE_BYTES, "object_store_bytes": OBJECT_STORE_BYTES, "steps": measured["steps"]}
    figure("s3.stream.peak_bytes", measured["peak_bytes"], "bytes", of="the training process, without shared memory", **fields)
    figure(
        "s3.stream.peak_disk_bytes",
        measured["peak_disk_bytes"],
        "bytes",
        of="all temporary files, Ray's logs with them",
        **fields,
    )


def write_wide(uri: str, size_bytes: int) -> None:
    """Episodes of random observations of 64 floats, so many that they take `size_bytes` in memory."""
    import gymnasium as gym
    import numpy as np

    from offline_core.data.datasets.commit import commit, prepare_dataset
    from offline_core.data.datasets.manifest import Operation
    from offline_core.data.datasets.writer import EpisodeWriter
    from offline_core.data.episodes import Episode

    width, length, together = 64, 1000, 64
    rng = np.random.default_rng(0)
    spaces: dict[str, gym.Space[Any]] = {
        "observation_space": gym.spaces.Box(-np.inf, np.inf, (width,), np.float32),
        "action_space": gym.spaces.Discrete(2),
    }
    with EpisodeWriter(prepare_dataset(uri), "part", format="episodes") as writer:
        for start in range(0, size_bytes // (width * 4 * length), together):
            episodes = [
                Episode(
                    eps_id=str(start + i),
                    observations=rng.standard_normal((length + 1, width), dtype=np.float32),
                    actions=rng.integers(0, 2, length),
                    rewards=np.ones(length),
                    truncated=True,
                    **spaces,
                )
                for i in range(together)
            ]
            writer.write(episodes)
    operation = Operation(name="benchmark")
    commit(uri, writer.files, format="episodes", operation=operation, statistics=writer.statistics, **spaces)


STREAM = """
import json, logging, os, threading, time
import psutil, ray
from offline_core.runtime.config import parse
from offline_core.learning.config import TrainingConfig
from offline_core.learning.train import train

quiet = dict(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
ray.init(num_cpus=4, object_store_memory={object_store_bytes}, _temp_dir="{scratch}/r", **quiet)

def on_disk():
    total = 0
    for folder, _, files in os.walk("{scratch}"):
        for name in files:
            try:
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
            except OSError:
                pass
    return total

peak_bytes, peak_disk_bytes, ended = 0, 0, threading.Event()
before = on_disk()
def watch():
    global peak_bytes, peak_disk_bytes
    while not ended.wait(0.05):
        memory = psutil.Process().memory_info()
        peak_bytes = max(peak_bytes, memory.rss - memory.shared)
        peak_disk_bytes = max(peak_disk_bytes, on_disk() - before)
threading.Thread(target=watch).start()
config = parse(TrainingConfig, {{
    "network": {{"hidden_sizes": [64]}}, "optimizer": {{"batch_size": 2048, "max_epochs": 1}},
    "data": {{"prelearners": 2, "resident_bytes": 0, "window_steps": 65536}}}})
try:
    result = train(config, dataset="{dataset}", output="{dataset}-policy")
finally:
    ended.set()
print(json.dumps(dict(peak_bytes=peak_bytes, peak_disk_bytes=peak_disk_bytes, steps=result.steps)))
"""


if __name__ == "__main__":
    main()
