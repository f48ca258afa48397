"""Three algorithms with three seeds each: our sweep on all cores, beside a loop over the peers' trainings.

    python -m benchmarks.reference.sweep_speed runs/reference --peer d3rlpy/bin/python --jax jax/bin/python [--updates 2000]

Prints the wall time of each side as a whole, processes and play included, and how many times ours it is. The peers' loops run
one training after the other, a process and a thread each, as a shell's `for` does. All have two layers of 256, batches of 256,
and ten greedy episodes at the end of each training; the data is what `benchmarks.reference` has recorded below the folder.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.figure import figure, seconds
from benchmarks.reference.data import prepare
from benchmarks.reference.suite import EPISODES, SETTINGS, TASKS

ALGORITHMS, SEEDS = ("bc", "td3_bc", "iql"), 3
OWN = {"hidden": [256, 256], "batch": 256, "rates": {"policy": 3e-4, "critics": 3e-4}, "normalize": True}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("runs/reference"))
    parser.add_argument("--peer", required=True, help="Python of an environment with d3rlpy 2.8")
    parser.add_argument("--jax", required=True, help="Python of an environment with jax, optax, h5py and gymnasium[mujoco]")
    parser.add_argument("--task", choices=TASKS, default="halfcheetah")
    parser.add_argument("--kind", default="medium-replay")
    parser.add_argument("--updates", type=int, default=2_000)
    arguments = parser.parse_args()
    data, minari = prepare(arguments.folder.absolute(), arguments.task, arguments.kind)
    environment, runs = TASKS[arguments.task].environment, list(itertools.product(ALGORITHMS, range(SEEDS)))
    with tempfile.TemporaryDirectory(prefix="offline-bench-") as folder:
        ours = seconds(_swept, f"{data.location.uri}@{data.manifest.version}", f"{folder}/sweep", arguments.updates)
        figure("reference.sweep.ours", ours, "s", runs=len(runs), updates=arguments.updates)
        for side, python in (("d3rlpy", arguments.peer), ("jax", arguments.jax)):
            orders = []
            for number, (algorithm, seed) in enumerate(runs):
                order = {"algorithm": algorithm, "updates": arguments.updates, "seed": seed, "environment": environment}
                order |= {"discrete": False, "episodes": EPISODES, "minari": f"{minari}/data/main_data.hdf5"}
                orders.append(Path(folder, f"{number}.json"))
                orders[-1].write_text(json.dumps(order | {"settings": SETTINGS[algorithm] | OWN}))
            loop = seconds(_looped, [python, str(Path(__file__).parent / f"{side}_side.py")], orders)
            figure(f"reference.sweep.{side}", loop, "s", times=round(loop / ours, 2))


def _swept(dataset: str, output: str, updates: int) -> None:
    """A process of its own, as the peers' are: imports and Ray's start count."""
    training: dict[str, Any] = {
        "network": {"hidden_sizes": OWN["hidden"], "activation": "relu", "normalize_observations": True},
        "optimizer": {
            "batch_size": OWN["batch"],
            "max_updates": updates,
            "updates_per_iteration": updates,
            "learning_rate": 3e-4,
        },
        "evaluation": {"episodes": EPISODES},
    }
    given = {"output": output, "training": training, "grid": {"algorithm": [*ALGORITHMS]}, "seeds": SEEDS}
    code = "import json, sys, offline_core; offline_core.sweep(sys.argv[1], **json.loads(sys.argv[2]))"
    subprocess.run([sys.executable, "-c", code, dataset, json.dumps(given)], check=True, stdout=subprocess.DEVNULL)


def _looped(command: list[str], orders: list[Path]) -> None:
    for order in orders:
        subprocess.run([*command, str(order)], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
