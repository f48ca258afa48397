"""A stream far larger than memory: flat memory, flat speed, killed and resumed in the middle, with 1, 2 and 4 learners.

    python -m benchmarks.size [--steps 100000000] [--learners 1,2,4] [--folder runs/size]

The dataset (3.4 GB at 10^8 steps) is one recording of 2 M steps again and again, as files of their own, and is made once. Each
training is a process that is killed with all it started once it is half done, and goes on in another.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import psutil

from benchmarks.data import write_recording
from benchmarks.figure import figure

PART_STEPS = 2_000_000
SECONDS_BETWEEN_LOOKS = 1.0
TRAIN = """
import sys, warnings
from offline_core.learning.config import TrainingConfig
from offline_core.learning.train import train
from offline_core.runtime.config import parse

dataset, output, learners = sys.argv[1:]
config = parse(TrainingConfig, {
    "evaluation": {"play": False}, "data": {"prelearners": 0, "resident_bytes": 0},
    "optimizer": {"batch_size": 8192, "max_epochs": 1, "updates_per_iteration": 50},
    "compute": {"learners": int(learners), "cpus_per_learner": 2 / max(2, int(learners))},
})
train(config, dataset=dataset, output=output)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10**8)
    parser.add_argument("--learners", default="1,2,4")
    parser.add_argument("--folder")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="offline-bench-") as root:
        dataset = os.path.abspath(f"{arguments.folder or root}/{arguments.steps}")
        if not os.path.exists(f"{dataset}/_versions/000001.json"):
            make(dataset, f"{root}/part", arguments.steps)
        for learners in map(int, arguments.learners.split(",")):
            train(dataset, f"{root}/run-{learners}", arguments.steps, learners)


def make(dataset: str, part: str, steps: int) -> None:
    """Write so many steps."""
    from offline_core.data.datasets.commit import commit, prepare_dataset
    from offline_core.data.datasets.dataset import open_dataset
    from offline_core.data.datasets.manifest import Operation

    write_recording(part, min(steps, PART_STEPS), format="table")
    source, files = open_dataset(part), []
    prepare_dataset(dataset)
    for copy in range(steps // source.ref.steps):
        for entry in source.manifest.files:
            name = f"copy-{copy:03d}-{entry.path}"
            shutil.copy(f"{part}/{entry.path}", f"{dataset}/{name}")
            files.append(entry.model_copy(update={"path": name}))
    counts = {
        "episodes": len(files) * source.ref.episodes,
        "steps": len(files) // len(source.manifest.files) * source.ref.steps,
    }
    commit(
        dataset,
        files,
        format="table",
        operation=Operation(name="benchmark"),
        statistics=source.manifest.statistics.model_copy(update=counts),
        observation_space=source.observation_space,
        action_space=source.action_space,
    )


def train(dataset: str, output: str, steps: int, learners: int) -> None:
    """One epoch, killed at half of it."""
    peaks: list[list[int]] = []
    begin = time.perf_counter()
    for until in (steps // 2, None):
        process = subprocess.Popen([sys.executable, "-c", TRAIN, dataset, output, str(learners)], start_new_session=True)
        sizes: list[int] = []
        while process.poll() is None:
            sizes.append(_learners_bytes(process.pid))
            if until is not None and _learned(output) >= until:
                break
            time.sleep(SECONDS_BETWEEN_LOOKS)
        _end(process)
        peaks.append(sizes)
        if until is None and process.returncode:
            raise RuntimeError(f"the training ended with {process.returncode}")
    took = time.perf_counter() - begin
    records = [record for record in _records(output) if "loss" in record]
    rates = [record["steps_per_second"] for record in records[1:-1]]
    quarter = len(rates) // 4
    fields: dict[str, Any] = {"learners": learners, "steps": steps}
    figure("size.seconds", took, "s", **fields, steps_per_second=round(statistics.median(rates)))
    flat = statistics.median(rates[-quarter:]) / statistics.median(rates[:quarter])
    figure("size.speed.last_quarter_over_first", flat, "ratio", **fields)
    for number, sizes in enumerate(peaks):
        third = len(sizes) // 3
        growth = max(sizes[-third:]) / max(sizes[third:-third])
        figure("size.memory.last_third_over_middle", growth, "ratio", **fields, process=number, peak_bytes=max(sizes))
    learned = records[-1]["steps"]
    figure(
        "size.steps.exact", float(learned == steps), "1: each once", **fields, learned=learned, updates=records[-1]["updates"]
    )


def _records(output: str) -> list[dict[str, Any]]:
    with contextlib.suppress(FileNotFoundError), open(f"{output}/metrics.jsonl") as file:
        return [json.loads(line) for line in file if line.endswith("\n")]
    return []


def _learned(output: str) -> int:
    return max((record.get("steps", 0) for record in _records(output)), default=0)


def _tree(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        first = psutil.Process(pid)
        return [first, *first.children(recursive=True)]
    return []


def _learners_bytes(pid: int) -> int:
    """Of all processes of the training, Ray's own included."""
    total = 0
    for process in _tree(pid):
        with contextlib.suppress(psutil.Error):
            total += process.memory_full_info().pss
    return total


def _end(process: subprocess.Popen[bytes]) -> None:
    for one in _tree(process.pid):
        with contextlib.suppress(psutil.Error):
            one.kill()
    process.wait()


if __name__ == "__main__":
    main()
