"""The field's algorithms on the field's tasks: ours, d3rlpy's, JAX's and single files on the same data, cell by cell.

    python -m benchmarks.reference runs/reference --peer d3rlpy/bin/python --jax jax/bin/python --tasks hopper --seeds 3
    python -m benchmarks.reference --table benchmarks/results/DATE-reference.json

The sides of a cell run one after the other, a process and a thread each. On two cores let two commands with other data run at
the same time, so that each side has the same company. What is in the folder is not made again, so a run of many hours can be
cut; `--page` writes a dated page of all cells of the folder after each, those that are missing marked as missing. Cells of the
last page in benchmarks/results are put into the folder first: what was measured on the same data is not measured again.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import offline_core as offline
from benchmarks.figure import environment as machine
from benchmarks.reference.data import prepare
from benchmarks.reference.page import CHOSEN, OURS, latest_page, restore, table, write_page
from benchmarks.reference.suite import KINDS, SETTINGS, SIDES, TASKS, Cell
from offline_core.learning.train import train


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("runs/reference"))
    parser.add_argument("--peer", help="Python of an environment with d3rlpy 2.8")
    parser.add_argument("--jax", help="Python of an environment with jax, optax, h5py and gymnasium[mujoco]")
    parser.add_argument(
        "--sides", nargs="*", choices=SIDES, help="None: those whose Python is known; empty: data is recorded, no cell is run"
    )
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=["hopper"])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--algorithms", nargs="+", choices=SETTINGS, default=["bc", "td3_bc", "iql"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=50_000)
    parser.add_argument("--page", action="store_true", help="write a page of all cells into benchmarks/results")
    parser.add_argument("--table", type=Path, metavar="FILE.json", help="only print the README's table of an earlier page")
    arguments = parser.parse_args()
    if arguments.table:
        print(table(json.loads(arguments.table.read_text())))
        return
    pythons = {"d3rlpy": arguments.peer, "jax": arguments.jax}
    sides = [side for side in SIDES if pythons.get(side, True)] if arguments.sides is None else arguments.sides
    for side in sides:
        if side in pythons and not pythons[side]:
            parser.error(f"the side {side} needs the Python of its environment: {'--peer' if side == 'd3rlpy' else '--jax'}")
    folder = arguments.folder.absolute()
    if (earlier := latest_page()) is not None:
        restore(earlier, folder)
    prepared = {}
    for task, kind in itertools.product(arguments.tasks, arguments.kinds):
        prepared[task, kind] = data, recording, _ = prepare(folder, task, kind)
        print(task, kind, data.ref, recording, flush=True)
    for (task, kind), algorithm in itertools.product(prepared, arguments.algorithms):
        if algorithm not in TASKS[task].algorithms:
            continue
        data, recording, minari = prepared[task, kind]
        for seed in range(arguments.seeds):  # all of a cell first: elsewhere another processor may record other data
            cell = Cell(task, kind, recording, algorithm, arguments.updates, seed)
            run(cell, folder, data, minari, sides, pythons)
            if arguments.page:
                print(write_page(folder))
    if arguments.page:
        print(write_page(folder))


def run(
    cell: Cell,
    folder: Path,
    data: offline.Dataset,
    minari: Path,
    sides: Sequence[str],
    pythons: dict[str, str | None],
) -> None:
    """Run these sides of a cell where they are missing; store what each prints last, with facts of the data and the processor.

    One of ours is missing, too, where another version of the training has run it.

    Arguments:
        minari: the data in Minari's format.
        pythons: of the environments of peers that have one of their own, by side.

    Raises:
        subprocess.CalledProcessError: a side failed; what it printed is above.
    """
    wanted = [side for side in SIDES if side in sides and cell.algorithm in SIDES[side]]
    missing = [side for side in wanted if not _is_there(cell.file(folder, side), side)]
    statistics = data.manifest.statistics
    facts = {"episodes": statistics.episodes, "steps": statistics.steps, "mean_return": statistics.returns.mean}
    known = {"data": facts, "processor": machine()["processor"]} | ({"loop_seconds": loop_seconds()} if missing else {})
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as temporary:
        order = Path(temporary, "order.json")
        order.write_text(json.dumps(cell.order(f"{data.location.uri}@{data.manifest.version}", str(minari))))
        for side in missing:
            printed = subprocess.run(
                _command(side, pythons, str(order)), env=environment, stdout=subprocess.PIPE, text=True, check=True
            ).stdout
            _store(json.loads(printed.strip().splitlines()[-1]) | known, cell.file(folder, side))


@functools.cache
def loop_seconds() -> float:
    """Seconds of 20 million additions here, by which machines of one name differ more than three times."""
    begin, one = time.perf_counter(), 1
    for number in range(20_000_000):
        _ = number + one
    return round(time.perf_counter() - begin, 2)


def _is_there(file: Path, side: str) -> bool:
    if not file.exists():
        return False
    return side not in (OURS, CHOSEN) or json.loads(file.read_text())["version"] == train.version


def _command(side: str, pythons: dict[str, str | None], order: str) -> list[str]:
    if (python := pythons.get(side)) is not None:
        return [python, str(Path(__file__).parent / f"{side}_side.py"), order]
    if side == CHOSEN:
        return [*_command(OURS, pythons, order), "--chosen"]
    return [sys.executable, "-m", f"benchmarks.reference.{side.replace('-', '_')}_side", order]


def _store(result: dict[str, Any], file: Path) -> None:
    file.parent.mkdir(exist_ok=True)
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(result))
    partial.rename(file)
    mean = sum(result["returns"]) / len(result["returns"])
    print(f"{file.stem}: return {mean:.1f}, {result['updates'] / result['cpu_seconds']:.0f} updates a CPU second", flush=True)


if __name__ == "__main__":
    main()
