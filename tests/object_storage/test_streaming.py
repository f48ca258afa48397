"""Training from a bucket that is not kept in memory: the same policy as from disk, in less memory than the data takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from offline_core.data.datasets.commit import commit, prepare_dataset
from offline_core.data.datasets.data_file import FilesConfig
from offline_core.data.datasets.dataset import Dataset
from offline_core.data.datasets.manifest import Operation
from offline_core.data.datasets.statistics import Statistics
from offline_core.data.datasets.writer import EpisodeWriter
from offline_core.data.episodes import Episode
from offline_core.learning.config import TrainingConfig
from offline_core.learning.result import TrainingResult
from offline_core.learning.train import train
from offline_core.policies.manifest import read_policy_manifest
from offline_core.runtime.config import parse
from tests.learning.test_train import balancing_episodes, dataset_of

STREAMED: dict[str, Any] = {
    "network": {"hidden_sizes": [16]},
    "optimizer": {"batch_size": 128, "max_epochs": 2},
    "data": {"resident_bytes": 0, "window_steps": 600},
}


def trained(dataset: str, output: str, settings: dict[str, Any]) -> tuple[TrainingResult, str]:
    """(result, hash of the last weights)"""
    result = train(parse(TrainingConfig, settings), dataset=dataset, output=output)
    return result, read_policy_manifest(result.last_checkpoint).weights_sha256


@pytest.mark.parametrize("format", ["episodes", "table"])
@pytest.mark.slow
def test_a_stream_from_a_bucket_teaches_what_one_from_disk_does(bucket: str, tmp_path: Path, format: str) -> None:
    """From many files."""
    made = balancing_episodes()
    stored = {
        place: dataset_of(f"{place}/{format}", made, format=format, rows=5, environment=None) for place in (bucket, tmp_path)
    }
    there, here = (trained(dataset, f"{place}/{format}-policy", STREAMED) for place, dataset in stored.items())
    assert there[0].losses == here[0].losses and there[1] == here[1]


OBJECT_STORE_BYTES = 80 * 2**20
WIDTH = 2048
PROGRAM = """
import json, ray, resource, sys
from offline_core.runtime.config import parse
from offline_core.learning.config import TrainingConfig
from offline_core.learning.train import train
from offline_core.runtime.ray_session import ray_session

dataset, output = sys.argv[1:]
settings = {
    "network": {"hidden_sizes": [8]},
    "optimizer": {"batch_size": 256, "max_epochs": 1, "updates_per_iteration": 10},
    "data": {"resident_bytes": 0, "window_steps": 2000, "prelearners": 1, "cpus_per_prelearner": 0.5},
}
with ray_session():
    store = ray.cluster_resources()["object_store_memory"]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    result = train(parse(TrainingConfig, settings), dataset=dataset, output=output)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    print(json.dumps({"store": store, "grown": grown, "steps": result.steps, "loss": result.losses[-1][1]}))
"""


@pytest.mark.slow
def test_data_of_three_times_the_object_store(bucket: str) -> None:
    """Fetched by a prelearner, through an object store and a process that never have room for all of it."""
    dataset = large_dataset(f"{bucket}/large")
    assert dataset.ref.bytes > 3 * OBJECT_STORE_BYTES
    environment = os.environ | {"OFFLINE_RAY_OBJECT_STORE_BYTES": str(OBJECT_STORE_BYTES), "OFFLINE_RAY_CPUS": "2"}
    command = [sys.executable, "-c", PROGRAM, dataset.location.uri, f"{bucket}/policy"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["store"] == OBJECT_STORE_BYTES and told["steps"] == dataset.ref.steps and np.isfinite(told["loss"])
    assert told["grown"] < dataset.ref.bytes / 2


def large_dataset(uri: str, episodes: int = 180, steps: int = 200) -> Dataset:
    """Noise, which nothing compresses."""
    random = np.random.default_rng(0)
    spaces = gym.spaces.Box(0, 1, (WIDTH,), np.float32), gym.spaces.Discrete(2)
    with EpisodeWriter(prepare_dataset(uri), "part", format="episodes", config=FilesConfig()) as writer:
        for number in range(episodes):
            made = Episode(
                eps_id=f"{number:04}",
                observations=random.random((steps + 1, WIDTH), np.float32),
                actions=random.integers(0, 2, steps),
                rewards=np.ones(steps),
                terminated=True,
                observation_space=spaces[0],
                action_space=spaces[1],
            )
            writer.write([made])
    return commit(
        uri,
        writer.files,
        format="episodes",
        operation=Operation(name="noise"),
        statistics=Statistics.of(writer.summaries),
        observation_space=spaces[0],
        action_space=spaces[1],
    )
