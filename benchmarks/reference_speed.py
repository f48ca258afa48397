"""Updates per second of our learners over d3rlpy's and a compiled JAX loop's: equal networks and batches, one core, in turns.

    python -m benchmarks.reference_speed --peer /path/to/d3rlpy/venv/bin/python --jax /path/to/jax/venv/bin/python

Two layers of 256, batches of 256 (ReBRAC: 1,024) of 11 observations and 3 actions; a process each. A ratio is of medians of the
rounds, by CPU time. `compiled` is ours with `compute.compile`, `bfloat16` with `compute.bfloat16`, over d3rlpy's float32.
`jax.ALGORITHM.ratio` takes the faster of plain and compiled; JAX's losses are checked first (`reference.jax_losses`).
`products.ALGORITHM.share` is the time of an update's matrix products alone over that of the update (`reference.products`).
Last, `reference.seeds8`: see `benchmarks.reference.seeds_speed`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.figure import figure

ALGORITHMS = ("bc", "iql", "td3_bc", "rebrac", "cql", "dcql")
FOLDER = Path(__file__).parent / "reference"
OURS = {"ours": [], "compiled": ["compile"], "bfloat16": ["bfloat16"]}
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help="Python of an environment with d3rlpy 2.8; without it, no ratios to d3rlpy")
    parser.add_argument("--jax", help="Python of an environment with jax and optax; without it, no ratios to JAX")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--algorithms", nargs="+", default=ALGORITHMS)
    arguments = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # XLA has threads of its own
    seconds = str(arguments.seconds)
    for name in arguments.algorithms:
        ours = [sys.executable, "-m", "benchmarks.reference.our_speed", name, seconds]
        sides = {side: [*ours, *options] for side, options in OURS.items()}
        if arguments.peer and name != "rebrac":
            sides["d3rlpy"] = [arguments.peer, str(FOLDER / "d3rlpy_speed.py"), name, seconds]
        if arguments.jax:
            check = [sys.executable, "-m", "benchmarks.reference.jax_losses", "--peer", arguments.jax, name]
            subprocess.run(check, check=True)
            sides["jax"] = [arguments.jax, str(FOLDER / "jax_speed.py"), name, seconds]
        rounds_by_side: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
        for _ in range(arguments.rounds):
            for side, command in sides.items():
                rounds_by_side[side].append(printed(command))
        say_rates(name, rounds_by_side)
        for options in ([], ["compile"]):
            share = printed([sys.executable, "-m", "benchmarks.reference.products", name, seconds, *options])
            figure(".".join(["products", short(name), *options, "share"]), share["share"], "")
        figure(f"products.{short(name)}.speed", share["gflops"], "GFLOP/s")
    subprocess.run([sys.executable, "-m", "benchmarks.reference.seeds_speed"], env=os.environ | ONE_THREAD, check=True)


def say_rates(name: str, rounds_by_side: dict[str, list[dict[str, Any]]]) -> None:
    """Print the figures of one algorithm, from what each side measured in each round."""
    for kind in ("drawn", "fixed"):
        measured = {side: [run[kind]["cpu"] for run in runs if kind in run] for side, runs in rounds_by_side.items()}
        medians = {side: statistics.median(rates) for side, rates in measured.items() if rates}
        for side, median in medians.items():
            figure(f"reference.{name}.{kind}.{side}", median, "updates/s")
        suffix = "" if kind == "drawn" else ".fixed"
        for side, middle in (("ours", ""), ("compiled", ".compiled"), ("bfloat16", ".bfloat16")):
            if "d3rlpy" in medians:
                figure(f"reference.{short(name)}{suffix}{middle}.ratio", medians[side] / medians["d3rlpy"], "times")
        if "jax" in medians:
            figure(f"jax.{short(name)}.ratio", max(medians["ours"], medians["compiled"]) / medians["jax"], "times")
            figure(f"jax.{short(name)}.plain.ratio", medians["ours"] / medians["jax"], "times")


def short(name: str) -> str:
    return name.replace("_", "")


def printed(command: list[str]) -> dict[str, Any]:
    """Return what a process prints in its last line."""
    done = subprocess.run(command, env=os.environ | ONE_THREAD, check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


if __name__ == "__main__":
    main()
