"""`auto` against fixed numbers of prelearners and learners on five trainings, each in a process of its own, with Ray's start.

    python -m benchmarks.auto [--cases small,large,images,prelearner,network] [--large-steps 37000000]

`auto.CASE.ratio` is the seconds of auto by those of the best fixed setting. For a quiet machine; the large case takes minutes.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
from typing import Any

import numpy as np

from benchmarks.data import write_recording
from benchmarks.figure import figure, seconds

SETTINGS: dict[str, dict[str, Any]] = {
    "auto": {"data": {"prelearners": "auto"}, "compute": {"learners": "auto"}},
    "0+0": {"data": {"prelearners": 0}, "compute": {"learners": 0}},
    "1+0": {"data": {"prelearners": 1}, "compute": {"learners": 0}},
    "0+2": {"data": {"prelearners": 0}, "compute": {"learners": 2}},
    "2+2": {
        "data": {"prelearners": 2, "cpus_per_prelearner": 0.25},
        "compute": {"learners": 2, "cpus_per_learner": 0.25},
    },
}
"""By prelearners + learners, as far as they fit on two CPUs."""
CASES: dict[str, dict[str, Any]] = {
    "small": {"optimizer": {"max_epochs": 5}},
    "large": {"optimizer": {"max_epochs": 1, "batch_size": 4096}},
    "images": {"optimizer": {"max_epochs": 1, "batch_size": 256}},
    "prelearner": {"optimizer": {"max_epochs": 2}, "data": {"connectors": [{"path": "benchmarks.auto:laboured"}]}},
    "network": {"optimizer": {"max_epochs": 4}, "network": {"hidden_sizes": [1024, 1024]}},
}
SMALL_STEPS = 100_000
IMAGES = 10_000
LABOUR = 200
"""Decompositions of a small matrix for each step: about half a millisecond."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--large-steps", type=int, default=37_000_000, help="about 27 bytes each, stored")
    parser.add_argument("--run", nargs=3, metavar=("DATASET", "OUTPUT", "JSON"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        run_train(*arguments.run)
        return
    with tempfile.TemporaryDirectory(prefix="offline-bench-") as root:
        for case in arguments.cases.split(","):
            dataset = f"{root}/{'images' if case == 'images' else 'large' if case == 'large' else 'small'}"
            if not os.path.exists(dataset):
                write(dataset, arguments.large_steps)
            compare(case, dataset)


def write(dataset: str, large_steps: int) -> None:
    if dataset.endswith("images"):
        write_images(dataset)
    else:
        write_recording(dataset, large_steps if dataset.endswith("large") else SMALL_STEPS, format="episodes")


def compare(case: str, dataset: str) -> None:
    took = {name: in_process(case, dataset, name) for name in SETTINGS}
    for name, duration_seconds in took.items():
        figure(f"auto.{case}.seconds", duration_seconds, "s", setting=name)
    fixed = {name: duration_seconds for name, duration_seconds in took.items() if name != "auto"}
    best = min(fixed, key=lambda name: fixed[name])
    figure(f"auto.{case}.ratio", took["auto"] / fixed[best], "", best=best)


def in_process(case: str, dataset: str, setting: str) -> float:
    settings = CASES[case] | {"evaluation": {"play": False}}
    for name, values in SETTINGS[setting].items():
        settings = settings | {name: settings.get(name, {}) | values}
    with tempfile.TemporaryDirectory(prefix="offline-bench-") as output:
        command = [sys.executable, "-m", "benchmarks.auto", "--run", dataset, f"{output}/policy", json.dumps(settings)]
        out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return float(out.splitlines()[-1])


def run_train(dataset: str, output: str, settings: str) -> None:
    """Prints the seconds of a training, with Ray's start and end."""
    from offline_core.learning.config import TrainingConfig
    from offline_core.learning.train import train
    from offline_core.runtime.config import parse

    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    config = parse(TrainingConfig, json.loads(settings))
    print(seconds(train, config, dataset=dataset, output=output))


def laboured(steps: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A connector that works hard for each step, and changes nothing."""
    matrix = np.eye(8)
    for _ in range(len(steps["obs"])):
        for _ in range(LABOUR // 10):
            np.linalg.svd(matrix)
    return steps


def write_images(uri: str) -> None:
    """Noise of 64 × 64 pixels."""
    import gymnasium as gym

    from offline_core.data.datasets.commit import commit, prepare_dataset
    from offline_core.data.datasets.manifest import Operation
    from offline_core.data.datasets.writer import EpisodeWriter
    from offline_core.data.episodes import Episode

    rng = np.random.default_rng(0)
    spaces = {"observation_space": gym.spaces.Box(0, 255, (64, 64, 3), np.uint8), "action_space": gym.spaces.Discrete(4)}
    with EpisodeWriter(prepare_dataset(uri), "part", format="episodes") as writer:
        for number in range(IMAGES // 100):
            episode = Episode(
                eps_id=f"{number:032x}",
                observations=rng.integers(0, 256, (101, 64, 64, 3), np.uint8),
                actions=rng.integers(0, 4, 100),
                rewards=rng.random(100),
                truncated=True,
                **spaces,
            )
            writer.write([episode])
    commit(uri, writer.files, format="episodes", operation=Operation(name="benchmark"), statistics=writer.statistics, **spaces)


if __name__ == "__main__":
    main()
