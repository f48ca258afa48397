"""A decision on long logs: seconds, and memory beside that of a log of a tenth.

    python -m benchmarks.decisions.large FOLDER [--steps 5000000] [--kind queue]

Each decision is of eight candidates in a process of its own; what is in FOLDER is not made again. Logs are written in parts.
A queue's episodes have 40 steps, those of clicks one.
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
from benchmarks.decisions.simulators import WORLDS
from benchmarks.figure import figure
from offline_core.judging.decisions.config import DecisionConfig
from offline_core.judging.decisions.decide import decide
from offline_core.runtime.config import parse


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=5_000_000)
    parser.add_argument("--kind", choices=sorted(WORLDS), default="queue")
    parser.add_argument("--one", action="store_true", help="only the decision on the log of so many steps")
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(one(arguments.folder, large(arguments.kind, arguments.steps))), flush=True)
        return
    measured = {}
    for steps in (arguments.steps // 10, arguments.steps):
        make(large(arguments.kind, steps), arguments.folder)
        command = [sys.executable, "-m", "benchmarks.decisions.large", str(arguments.folder), "--one"]
        command += ["--steps", str(steps), "--kind", arguments.kind]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        measured[steps] = json.loads(printed.strip().splitlines()[-1])
        figure(f"decisions.large.{arguments.kind}.{steps}.seconds", measured[steps]["seconds"], "s", **measured[steps])
    few, many = measured.values()
    figure(f"decisions.large.{arguments.kind}.memory.ratio", many["memory_bytes"] / few["memory_bytes"], "times")


def large(kind: str, steps: int) -> Log:
    """The log of so many steps."""
    return Log(kind, steps // WORLDS[kind].steps, "medium", known=True, seed=7)


def one(folder: Path, log: Log) -> dict[str, float | str]:
    """Decide on one log, anew."""
    logging.disable(logging.WARNING)
    torch.set_num_threads(2)
    made = make(log, folder)
    config = parse(DecisionConfig, {"estimate": {"gamma": WORLDS[log.world].gamma}, "seed": int(time.time())})
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
