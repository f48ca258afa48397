"""A page of the cells of a folder: scores with intervals, and speeds, of each side."""

from __future__ import annotations

import datetime
import json
import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.figure import environment
from benchmarks.reference.suite import KINDS, SETTINGS, SIDES, TASKS, Cell
from offline_core.judging.sweeps.statistics import interquartile_mean, interval

RESULTS = Path(__file__).parent.parent / "results"
DRAWN: dict[str, Any] = {"resamples": 2_000, "confidence": 0.95, "seed": 0}

OURS, CHOSEN, *PEERS = SIDES
IN_README = ("ours", "d3rlpy", "jax")
SEEDS_IN_README = 3
"""Seeds that each side of a cell must have run; with fewer a score has no interval."""
MOST_APART = 1.5
"""Times as long for the same additions, beside other work, up to which machines are of one speed."""
REMARKS = "## Remarks"
"""What people write below this line of a page is on the next page, too."""

_VERSIONS = ("python", "torch", "gymnasium", "mujoco")

Runs = dict[str, list[dict[str, Any]]]
"""By side, in order of seeds."""


def write_page(folder: Path) -> Path:
    """Write benchmarks/results/DATE-reference.md and .json from all cells below `folder`; return the page's path."""
    measured = collected(folder)
    file = RESULTS / f"{measured['date']}-reference.md"
    remarks = sorted(RESULTS.glob("*-reference.md"))[-1].read_text().partition(REMARKS)[1:]
    for suffix, text in ((".json", json.dumps(measured, indent=1) + "\n"), (".md", "".join([page_of(measured), *remarks]))):
        partial = file.with_suffix(f"{suffix}.{os.getpid()}")  # two commands may write the page
        partial.write_text(text)
        partial.rename(file.with_suffix(suffix))
    return file


def collected(folder: Path) -> dict[str, Any]:
    """All cells below `folder`, their data, and the versions of what ran, as JSON."""
    cells: dict[tuple[str, str, str, str, int], Runs] = defaultdict(lambda: {side: [] for side in SIDES})
    data = {}
    for file in (folder / "cells").glob("*.json"):
        task, kind, recording, algorithm, updates, seed, side = file.stem.split(".")
        result = json.loads(file.read_text())
        data[task, kind, recording] = result.pop("data")
        cells[task, kind, recording, algorithm, int(updates)][side].append({"seed": int(seed), **result})
    for runs in cells.values():
        for side in SIDES:
            runs[side].sort(key=lambda run: run["seed"])
    return {
        "date": str(datetime.date.today()),
        "versions": {name: value for name, value in environment("torch", "gymnasium", "mujoco").items() if name in _VERSIONS},
        "cells": [asdict(row) for row in sorted((_Row(*key, runs) for key, runs in cells.items()), key=_Row.place)],
        "data": [
            {"task": task, "kind": kind, "recording": recording, **facts}
            for (task, kind, recording), facts in sorted(data.items(), key=lambda item: _place_of_data(*item[0]))
        ],
    }


def restore(measured: dict[str, Any], folder: Path) -> None:
    """Write the cells of an earlier page, as `collected` has it, below `folder`, where they are not there.

    A run of many hours goes on with them on another machine.
    """
    (folder / "cells").mkdir(parents=True, exist_ok=True)
    facts = {
        dataset["recording"]: {name: dataset[name] for name in ("episodes", "steps", "mean_return")}
        for dataset in measured["data"]
    }
    for row in (_Row(**cell) for cell in measured["cells"]):
        for side, runs in row.runs.items():
            for run in runs:
                cell = Cell(row.task, row.kind, row.data, row.algorithm, row.updates, run["seed"])
                if not (file := cell.file(folder, side)).exists():
                    result = {name: value for name, value in run.items() if name != "seed"}
                    partial = file.with_suffix(f".{os.getpid()}")  # another command may read the folder
                    partial.write_text(json.dumps(result | {"data": facts[row.data]}))
                    partial.rename(file)


def latest_page() -> dict[str, Any] | None:
    """What `collected` gave for the last page in benchmarks/results; None if there is no page yet."""
    files = sorted(RESULTS.glob("*-reference.json"))
    return json.loads(files[-1].read_text()) if files else None


def page_of(measured: dict[str, Any]) -> str:
    """The page; a side of a cell that is not there is marked as missing, an algorithm that a side does not have by a dash."""
    rows = [_Row(**cell) for cell in measured["cells"]]
    lines = [
        f"# Reference, {measured['date']}",
        "",
        "Ours, d3rlpy 2.8, compiled scans of JAX, and single files of plain Torch in the style of CORL, on the same",
        "recordings: same networks, batches, rates and number of updates (benchmarks/reference/suite.py), a process and a",
        "thread each, one after the other beside another cell. A run's score is that of its last policy: 100 · (return -",
        "random) / (expert - random) with D4RL's returns, of 10 greedy episodes from the same starts. Shown is the",
        "interquartile mean of the seeds, ± their standard deviation, [low, high] a bootstrap interval of 95 % over them (as",
        "in rliable; of three seeds the mean). Speeds are updates a CPU second, the reading of the data or the compilation",
        f'included, of d3rlpy without reading the file. "-": the side does not have the algorithm. {CHOSEN}: a tenth of the',
        "episodes is held out, and of the policies of each 1,000 updates the one with the least loss there is played.",
        "",
        " ".join(f"{name}: {value}." for name, value in measured["versions"].items()),
        "",
        _line(
            "data",
            "recording",
            "algorithm",
            "updates",
            "processor",
            "our training",
            "seeds",
            *SIDES,
            *(f"in or above {peer}'s interval" for peer in PEERS),
            f"speed: {' / '.join(SIDES)}",
        ),
        _line(*["---"] * (8 + len(SIDES) + len(PEERS))),
    ]
    lines += [row.text for row in rows]
    missing = {f"{task} {kind}": _not_run(task, kind, rows) for task in TASKS for kind in KINDS}
    lines += ["", *(f"In or above {peer}'s interval: {_count([row.compared(peer) for row in rows])}." for peer in PEERS), ""]
    lines += [
        "Of two equal learners, three seeds of one are in or above the interval of three seeds of the other in 81 % of cells.",
        "",
        "Data, by our own flow from fixed seeds, named by what its episodes hold:",
        "",
        _line("data", "recording", "episodes", "steps", "mean return"),
        _line(*["---"] * 5),
    ]
    lines += [
        _line(
            f"{dataset['task']} {dataset['kind']}",
            dataset["recording"],
            f"{dataset['episodes']:,}",
            f"{dataset['steps']:,}",
            f"{dataset['mean_return']:.1f}",
        )
        for dataset in measured["data"]
    ]
    lines += ["", f"Missing: {'; '.join(f'{data} ({names})' for data, names in missing.items() if names)}.", "", ""]
    return "\n".join(lines)


def table(measured: dict[str, Any]) -> str:
    """The table of the README: the whole cells of IN_README, their scores, and how many times as fast we are."""
    rows = [_Row(**cell) for cell in measured["cells"]]
    whole = [row for row in rows if all(len(row.runs[side]) >= SEEDS_IN_README for side in IN_README)]
    seeds = sorted({len(row.runs[side]) for row in whole for side in IN_README})
    updates = sorted({row.updates for row in whole})
    times = [f"updates a second, times {peer}'s" for peer in IN_README[1:]]
    lines = [_line("score", *IN_README, *times, "processor", "our training")]
    lines += [_line(*["---"] * (2 * len(IN_README) + 2))]
    lines += [
        _line(
            f"{row.task} {row.kind}, {row.algorithm}",
            *(f"{interquartile_mean(row.scores(side)):.1f}" for side in IN_README),
            *(row.times(peer) for peer in IN_README[1:]),
            " / ".join(row.processors),
            row.version,
        )
        for row in whole
    ]
    above = " and ".join(f"{peer}'s interval in {_count([row.compared(peer) for row in whole])}" for peer in IN_README[1:])
    lines += [
        "",
        f"Normalised scores (0: random, 100: D4RL's expert) after {_either(updates)} updates of the last policy, "
        f"means of {_either(seeds)} seeds. "
        f"In or above {above}. {measured['date']}.",
    ]
    return "\n".join(lines)


@dataclass(frozen=True)
class _Row:
    """A cell with all its seeds."""

    task: str
    kind: str
    data: str
    algorithm: str
    updates: int
    runs: Runs

    def place(self) -> tuple[Any, ...]:
        """By the order of the suite."""
        return *_place_of_data(self.task, self.kind, self.data), list(SETTINGS).index(self.algorithm), self.updates

    @property
    def text(self) -> str:
        seeds = [str(len(self.runs[side])) for side in SIDES if self.algorithm in SIDES[side]]
        columns = [
            f"{self.task} {self.kind}",
            self.data,
            self.algorithm,
            f"{self.updates:,}",
            " / ".join(self.processors),
            self.version,
        ]
        columns += [seeds[0] if len({*seeds}) == 1 else " / ".join(seeds)]
        columns += [self._absent(side) or _text(self.scores(side)) for side in SIDES]
        columns += [self._absent(peer) or {True: "yes", False: "no", None: "missing"}[self.compared(peer)] for peer in PEERS]
        return _line(*columns, " / ".join(self._absent(side) or f"{self.speed(side):.0f}" for side in SIDES))

    def compared(self, peer: str) -> bool | None:
        """Whether our mean score is in the peer's interval or above; None: one of the two is missing."""
        if self._absent(OURS) or self._absent(peer):
            return None
        scores = self.scores(peer)
        ends = interval(scores, **DRAWN)
        return bool(interquartile_mean(self.scores(OURS)) >= (scores.min() if ends is None else ends[0]))

    def _absent(self, side: str) -> str:
        """What stands in place of a side, "" if it is there."""
        return "" if self.runs[side] else "missing" if self.algorithm in SIDES[side] else "-"

    def scores(self, side: str) -> np.ndarray:
        """Return the scores of the seeds."""
        return np.array([TASKS[self.task].score(float(np.mean(run["returns"]))) for run in self.runs[side]])

    @property
    def version(self) -> str:
        """Which version of our training ran ours."""
        versions = sorted({run["version"] for run in self.runs[OURS]})
        return f"version {' and '.join(map(str, versions))}" if versions else ""

    @property
    def processors(self) -> list[str]:
        """What the sides ran on; speeds of one processor compare."""
        return sorted({run.get("processor", "not known") for runs in self.runs.values() for run in runs})

    def times(self, peer: str) -> str:
        """How many times the peer's updates ours does in a CPU second; not told if they ran on machines of other speeds."""
        loops = [run.get("loop_seconds", 0.0) for side in (OURS, peer) for run in self.runs[side]]
        return f"{self.speed(OURS) / self.speed(peer):.2f}" if max(loops) <= MOST_APART * min(loops) else "-"

    def speed(self, side: str) -> float:
        """Updates a CPU second."""
        total: float = sum(run["updates"] for run in self.runs[side]) / sum(run["cpu_seconds"] for run in self.runs[side])
        return total


def _count(compared: list[bool | None]) -> str:
    known = [outcome for outcome in compared if outcome is not None]
    return f"{sum(known)} of {len(known)} cells"


def _not_run(task: str, kind: str, rows: Iterable[_Row]) -> str:
    """The algorithms that no side has run on this data, or "all"."""
    run = {row.algorithm for row in rows if (row.task, row.kind) == (task, kind)}
    names = [algorithm for algorithm in TASKS[task].algorithms if algorithm not in run]
    return "all" if names == TASKS[task].algorithms else ", ".join(names)


def _either(numbers: list[int]) -> str:
    return " or ".join(f"{number:,}" for number in numbers)


def _text(scores: np.ndarray) -> str:
    ends = interval(scores, **DRAWN)
    between = "" if ends is None else f" [{ends[0]:.1f}, {ends[1]:.1f}]"
    return f"{interquartile_mean(scores):.1f} ± {scores.std():.1f}{between}"


def _line(*columns: str) -> str:
    return f"| {' | '.join(columns)} |"


def _place_of_data(task: str, kind: str, recording: str) -> tuple[int, int, str]:
    return list(TASKS).index(task), KINDS.index(kind), recording
