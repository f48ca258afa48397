"""The field's algorithms on the field's tasks: ours and d3rlpy's on the same files, in turns, cell by cell.

    python -m benchmarks.reference runs/reference --peer /path/to/d3rlpy/venv/bin/python --tasks hopper --seeds 3

Both sides of a cell run at the same time, a process and a thread each. What is in the folder is not made again, so a run of
many hours can be cut; `--page` writes a dated page of all cells of the folder, those that are missing marked as missing.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.reference.data import prepare
from benchmarks.reference.page import write_page
from benchmarks.reference.suite import KINDS, SETTINGS, SIDES, TASKS, Cell

PEER = Path(__file__).parent / "d3rlpy_side.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--peer", help="Python of an environment with d3rlpy 2.8; None: no cell is run")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=["hopper"])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--algorithms", nargs="+", choices=SETTINGS, default=["bc", "td3_bc", "iql"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--updates", type=int, default=50_000)
    parser.add_argument("--page", action="store_true", help="write a page of all cells into benchmarks/results")
    given = parser.parse_args()
    folder = given.folder.absolute()
    for task, kind in itertools.product(given.tasks, given.kinds):
        data = prepare(folder, task, kind)
        print(task, kind, data.ref, data.manifest.fingerprint, flush=True)
    if given.peer:
        for seed, task, kind, algorithm in itertools.product(range(given.seeds), given.tasks, given.kinds, given.algorithms):
            if algorithm in TASKS[task].algorithms:
                run(Cell(task, kind, algorithm, seed, given.updates), folder, given.peer)
    if given.page:
        print(write_page(folder))


def run(cell: Cell, folder: Path, peer: str) -> None:
    """Run the sides of a cell that are missing, and store what each prints in its last line.

    Raises:
        subprocess.CalledProcessError: a side failed; what it printed is above.
    """
    order = folder / "order.json"
    order.write_text(json.dumps(cell.order(folder)))
    commands = {"ours": [sys.executable, "-m", "benchmarks.reference.ours_side"], "d3rlpy": [peer, str(PEER)]}
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    missing = [side for side in SIDES if not cell.file(folder, side).exists()]
    running = {
        side: subprocess.Popen([*commands[side], str(order)], env=os.environ | threads, stdout=subprocess.PIPE, text=True)
        for side in missing
    }
    for side, process in running.items():
        printed, _ = process.communicate()
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, process.args, printed)
        file = cell.file(folder, side)
        file.parent.mkdir(exist_ok=True)
        partial = file.with_suffix(".partial")
        partial.write_text(printed.strip().splitlines()[-1])
        partial.rename(file)
        found = json.loads(file.read_text())
        mean = sum(found["returns"]) / len(found["returns"])
        print(f"{file.stem}: return {mean:.1f}, {found['updates'] / found['cpu_seconds']:.0f} updates a CPU second", flush=True)


if __name__ == "__main__":
    main()
