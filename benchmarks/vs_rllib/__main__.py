"""The example of RLlib's document, by RLlib and by us, on the same machine in the same run: how long it takes, what is lost.

    python -m benchmarks.vs_rllib [--rounds 2] [--limit-seconds 600] [--stages …] [--report benchmarks/results/DATE-vs_rllib]
    python -m benchmarks.vs_rllib --table benchmarks/results/DATE-vs_rllib.json

Each side of each stage is a process of its own, RLlib and we in turns; its seconds are from its start to its end, with all
imports and the start and end of Ray. Needs the extra `interop`, a quiet machine and, with the defaults, one to two hours.
What is done is kept in the folder `--work`, and not done again.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.figure import environment
from benchmarks.vs_rllib.measuring import CHECK_LIMIT_SECONDS, measure
from benchmarks.vs_rllib.report import IN_README, print_figures, table, write
from benchmarks.vs_rllib.rllib_side import CHANGES
from benchmarks.vs_rllib.runs import LEARNING, SIDES, STAGES, SideRun, append, read, source_of
from benchmarks.vs_rllib.task import Task
from offline_core.runtime.provenance import provenance

SETTINGS = "settings.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES)
    parser.add_argument("--rounds", type=int, default=2, help="how often each side runs each stage")
    parser.add_argument("--limit-seconds", type=float, default=600.0, help="a run is ended then, and counts as not finished")
    parser.add_argument("--target-return", type=float, default=450.0, help="of the expert and the clones")
    parser.add_argument("--work", type=Path, default=Path("runs/vs_rllib"), help="folder of all that is made on the way")
    parser.add_argument("--report", help="path without suffix: writes .md, .json and .png")
    parser.add_argument("--table", type=Path, metavar="FILE.json", help="only print the README's table of an earlier report")
    arguments = parser.parse_args()
    if arguments.table:
        print(table(json.loads(arguments.table.read_text()), IN_README))
        return
    settings = {"target_return": arguments.target_return, "limit_seconds": arguments.limit_seconds}
    about = begun(arguments.work, {"settings": settings, "machine": machine(), "versions": versions(), "changes": CHANGES})
    measure_all(arguments.work.resolve(), arguments.stages, arguments.rounds, settings)
    report = without_places({**about, "runs": [run.__dict__ for run in read(arguments.work)]}, arguments.work)
    print_figures(report)
    print(table(report))
    if arguments.report:
        write(report, arguments.report)


def begun(work: Path, about: dict[str, Any]) -> dict[str, Any]:
    """What is said of the whole benchmark, from its beginning, if this goes on with one."""
    work.mkdir(parents=True, exist_ok=True)
    about = json.loads(json.dumps(about))
    if not (file := work / SETTINGS).exists():
        file.write_text(json.dumps({"date": datetime.now(UTC).date().isoformat(), **about}, indent=2))
    before: dict[str, Any] = json.loads(file.read_text())
    for name in ("settings", "machine", "versions"):
        if before[name] != about[name]:
            raise SystemExit(f"{work} was begun with other {name}: {before[name]}, now {about[name]}. Choose another --work.")
    return before


def without_places(report: dict[str, Any], work: Path) -> dict[str, Any]:
    """Paths of this machine do not belong on a page."""
    text = json.dumps(report)
    for folder in (work.resolve(), Path.cwd()):
        text = text.replace(f"{folder}/", "")
    without: dict[str, Any] = json.loads(text)
    return without


def measure_all(work: Path, stages: list[str], rounds: int, settings: dict[str, float]) -> None:
    """Runs what has not been run yet, the sides in turns."""
    for stage in (stage for stage in STAGES if stage in stages):
        for number in range(rounds):
            for side in SIDES:
                one(work, stage, side, number, settings)
        for side in SIDES if stage in LEARNING else ():
            one(work, f"{stage}_seen", side, 0, settings | {"limit_seconds": CHECK_LIMIT_SECONDS})


def one(work: Path, stage: str, side: str, number: int, settings: dict[str, float]) -> None:
    """Runs one side of one stage, unless it has been run, and keeps what came of it."""
    runs = read(work)
    if any(run.key == (stage, side, number) and run.outcome != "not_run" for run in runs):
        return
    source, missing = source_of(stage, side, runs)
    if missing:
        run = SideRun(stage, side, number, "not_run", message=f"It needs {missing}, which has not finished.")
    else:
        output = str(work / stage / f"{side}-{number}")
        task = Task(stage, output, source, target_return=settings["target_return"], seed=number)
        run = measure(task, side, number, limit_seconds=settings["limit_seconds"])
    append(work, run)
    told = {"stage": stage, "side": side, "round": number, "outcome": run.outcome, "seconds": round(run.seconds, 1)}
    print(json.dumps({**told, **{name: round(value, 1) for name, value in run.counts.items()}}), flush=True)


def machine() -> dict[str, Any]:
    """Model of the CPU, cores and memory."""
    facts = environment()
    return {
        "cpu": facts["processor"],
        "cores": os.cpu_count(),
        "memory_gib": facts["memory_gib"],
        "system": platform.system(),
    }


def versions() -> dict[str, str]:
    """Return the versions of what shapes the figures; the revision of the code is with each run."""
    facts = provenance() | {name: version(name) for name in ("polars", "msgpack-numpy")}
    return {name: value for name, value in facts.items() if name != "git"}


if __name__ == "__main__":
    main()
