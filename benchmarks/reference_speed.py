"""Updates per second of our learners over d3rlpy's: equal networks and batches, one thread, a process each, in turns.

    python -m benchmarks.reference_speed --peer /path/to/d3rlpy/venv/bin/python

Two layers of 256, batches of 256 of 11 observations and 3 actions. A ratio is of medians of the rounds, by CPU time. `bfloat16`
is ours with `compute.bfloat16`, over d3rlpy's float32. Last, `reference.seeds8`: see `benchmarks.reference.seeds_speed`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.figure import figure

ALGORITHMS = ("bc", "iql", "td3_bc", "cql", "dcql")
PEER = Path(__file__).parent / "reference" / "d3rlpy_speed.py"
Rates = dict[str, dict[str, float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, help="Python of an environment with d3rlpy 2.8")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--algorithms", nargs="+", default=ALGORITHMS)
    arguments = parser.parse_args()
    for name in arguments.algorithms:
        sides = {
            "d3rlpy": [arguments.peer, str(PEER), name, str(arguments.seconds)],
            "ours": [sys.executable, "-m", "benchmarks.reference.our_speed", name, str(arguments.seconds)],
            "bfloat16": [sys.executable, "-m", "benchmarks.reference.our_speed", name, str(arguments.seconds), "bfloat16"],
        }
        found: dict[str, list[Rates]] = {side: [] for side in sides}
        for _ in range(arguments.rounds):
            for side, command in sides.items():
                found[side].append(rates(command))
        for kind in ("drawn", "fixed"):
            medians = {side: statistics.median(each[kind]["cpu"] for each in runs) for side, runs in found.items()}
            for side, median in medians.items():
                figure(f"reference.{name}.{kind}.{side}", median, "updates/s")
            for side in ("ours", "bfloat16"):
                suffix = "ratio" if side == "ours" else "bfloat16.ratio"
                short = name.replace("_", "") + ("" if kind == "drawn" else ".fixed")
                figure(f"reference.{short}.{suffix}", medians[side] / medians["d3rlpy"], "times")
    subprocess.run([sys.executable, "-m", "benchmarks.reference.seeds_speed"], env=one_thread(), check=True)


def rates(command: list[str]) -> Rates:
    """What a side prints in its last line."""
    done = subprocess.run(command, env=one_thread(), check=True, capture_output=True, text=True)
    found: Rates = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def one_thread() -> dict[str, str]:
    """The environment of a process whose libraries use one thread."""
    return os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


if __name__ == "__main__":
    main()
