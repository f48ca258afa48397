"""A decision on a log of five million steps: seconds, and memory beside that of a log of a tenth.

    python -m benchmarks.decisions.large FOLDER [--episodes 125000]

Each decision is of eight candidates in a process of its own; what is in FOLDER is not made again.
"""

from __future__ import annotations

import argparse
import json
import logging
import resource
import subprocess
import sys
import time
from pathlib import Path

import torch

from benchmarks.decisions.logs import Log, make
from benchmarks.figure import figure
from offline_core.judging.decisions.config import DecisionConfig
from offline_core.judging.decisions.decide import decide
from offline_core.runtime.config import parse


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--episodes", type=int, default=125_000, help="of 40 steps each")
    parser.add_argument("--one", type=int, help="only the decision on a log of so many episodes")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(one(given.folder, given.one)), flush=True)
        return
    found = {}
    for episodes in (given.episodes // 10, given.episodes):
        make(large(episodes), given.folder)
        command = [sys.executable, "-m", "benchmarks.decisions.large", str(given.folder), "--one", str(episodes)]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found[episodes] = json.loads(printed.strip().splitlines()[-1])
        figure(f"decisions.large.{40 * episodes}.seconds", found[episodes]["seconds"], "s", **found[episodes])
    few, many = found.values()
    figure("decisions.large.memory.ratio", many["memory_bytes"] / few["memory_bytes"], "times")


def large(episodes: int) -> Log:
    """The log of so many episodes of the queue."""
    return Log("queue", episodes, "medium", known=True, seed=7)


def one(folder: Path, episodes: int) -> dict[str, float | str]:
    """Decide on one log, anew."""
    logging.disable(logging.WARNING)
    torch.set_num_threads(2)
    made = make(large(episodes), folder)
    config = parse(DecisionConfig, {"estimate": {"gamma": 0.97}, "seed": int(time.time())})
    start, cpu = time.perf_counter(), time.process_time()
    result = decide(config, dataset=made.data, candidates=made.candidates, output=str(folder / "large" / str(time.time_ns())))
    return {
        "seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time() - cpu,
        "memory_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "verdict": result.verdict,
    }


if __name__ == "__main__":
    main()
