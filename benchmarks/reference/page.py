"""A page of the cells of a folder: scores with intervals, and speeds, of each side."""

from __future__ import annotations

import datetime
import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.figure import environment
from benchmarks.reference.suite import KINDS, SETTINGS, SIDES, TASKS
from offline_core.data.datasets.dataset import open_dataset
from offline_core.judging.sweeps.statistics import Bootstrap, interquartile_mean, interval

RESULTS = Path(__file__).parent.parent / "results"
BOOTSTRAP = Bootstrap(resamples=2_000, confidence=0.95, seed=0)

OURS, *PEERS = SIDES

Key = tuple[str, str, str, int]
"""Task, kind, algorithm, updates."""
Runs = dict[str, list[dict[str, Any]]]
"""By side, in order of seeds."""


def write_page(folder: Path) -> Path:
    """Write benchmarks/results/DATE-reference.md from all cells below `folder`; return its path."""
    file = RESULTS / f"{datetime.date.today()}-reference.md"
    file.write_text(page_of(folder))
    return file


def page_of(folder: Path) -> str:
    """The page; a side of a cell that is not there is marked as missing, an algorithm that a side does not have by a dash."""
    cells = _cells(folder)
    rows = [_Row(*key, runs) for key, runs in sorted(cells.items(), key=_place)]
    machine = environment("torch", "gymnasium", "mujoco")
    lines = [
        f"# Reference, {datetime.date.today()}",
        "",
        "Ours, d3rlpy 2.8, compiled scans of JAX, and single files of plain Torch in the style of CORL, on the same",
        "recordings: same networks, batches, rates and number of updates (benchmarks/reference/suite.py), a process and a",
        "thread each, two at the same time. A run's score is that of its last policy: 100 · (return - random) / (expert -",
        "random) with D4RL's returns, of 10 greedy episodes from the same starts. Shown is the interquartile mean of the",
        "seeds, ± their standard deviation, [low, high] a bootstrap interval of 95 % over them (as in rliable; of three seeds",
        "the mean). Speeds are updates a CPU second, the reading of the data or the compilation included, of d3rlpy without",
        'reading the file. "-": the side does not have the algorithm.',
        "",
        " ".join(f"{name}: {value}." for name, value in machine.items()),
        "",
        _line(
            "data",
            "algorithm",
            "updates",
            "seeds",
            *SIDES,
            *(f"in or above {peer}'s interval" for peer in PEERS),
            f"speed: {' / '.join(SIDES)}",
        ),
        _line(*["---"] * (5 + len(SIDES) + len(PEERS))),
    ]
    lines += [row.text for row in rows]
    missing = {f"{task} {kind}": _not_run(task, kind, cells) for task in TASKS for kind in KINDS}
    lines += ["", *(f"In or above {peer}'s interval: {_count([row.compared(peer) for row in rows])}." for peer in PEERS), ""]
    lines += [
        "Data, by our own flow from fixed seeds:",
        "",
        _line("data", "episodes", "steps", "mean return", "fingerprint"),
        _line(*["---"] * 5),
    ]
    lines += [_data_line(folder, task, kind) for task in TASKS for kind in KINDS if (folder / "data" / task / kind).exists()]
    lines += ["", f"Missing: {'; '.join(f'{data} ({names})' for data, names in missing.items() if names)}.", ""]
    return "\n".join(lines)


@dataclass(frozen=True)
class _Row:
    """A cell with all its seeds."""

    task: str
    kind: str
    algorithm: str
    updates: int
    runs: Runs

    @property
    def text(self) -> str:
        seeds = [str(len(self.runs[side])) for side in SIDES if self.algorithm in SIDES[side]]
        columns = [f"{self.task} {self.kind}", self.algorithm, f"{self.updates:,}"]
        columns += [seeds[0] if len({*seeds}) == 1 else " / ".join(seeds)]
        columns += [self._absent(side) or _text(self._scores(side)) for side in SIDES]
        columns += [self._absent(peer) or {True: "yes", False: "no", None: "missing"}[self.compared(peer)] for peer in PEERS]
        return _line(*columns, " / ".join(self._absent(side) or f"{self._speed(side):.0f}" for side in SIDES))

    def compared(self, peer: str) -> bool | None:
        """Whether our mean score is in the peer's interval or above; None: one of the two is missing."""
        if self._absent(OURS) or self._absent(peer):
            return None
        scores = self._scores(peer)
        ends = interval(interquartile_mean, scores[:, None], BOOTSTRAP)
        return bool(interquartile_mean(self._scores(OURS)) >= (scores.min() if ends is None else ends[0]))

    def _absent(self, side: str) -> str:
        """What stands in place of a side, "" if it is there."""
        return "" if self.runs[side] else "missing" if self.algorithm in SIDES[side] else "-"

    def _scores(self, side: str) -> np.ndarray:
        return np.array([TASKS[self.task].score(float(np.mean(run["returns"]))) for run in self.runs[side]])

    def _speed(self, side: str) -> float:
        total: float = sum(run["updates"] for run in self.runs[side]) / sum(run["cpu_seconds"] for run in self.runs[side])
        return total


def _count(compared: list[bool | None]) -> str:
    known = [each for each in compared if each is not None]
    return f"{sum(known)} of {len(known)} cells"


def _not_run(task: str, kind: str, cells: Iterable[Key]) -> str:
    """The algorithms that no side has run on this data, or "all"."""
    run = {algorithm for its_task, its_kind, algorithm, _ in cells if (its_task, its_kind) == (task, kind)}
    names = [algorithm for algorithm in TASKS[task].algorithms if algorithm not in run]
    return "all" if names == TASKS[task].algorithms else ", ".join(names)


def _cells(folder: Path) -> dict[Key, Runs]:
    found: dict[Key, Runs] = defaultdict(lambda: {side: [] for side in SIDES})
    for file in sorted((folder / "cells").glob("*.json")):
        side = next(side for side in SIDES if file.stem.endswith(f"-{side}"))
        task, rest = file.stem.removesuffix(f"-{side}").split("-", 1)
        kind, algorithm, updates, _seed = rest.rsplit("-", 3)
        found[task, kind, algorithm, int(updates)][side].append(json.loads(file.read_text()))
    return found


def _place(item: tuple[Key, Runs]) -> tuple[int, int, int, int]:
    (task, kind, algorithm, updates), _ = item
    return list(TASKS).index(task), KINDS.index(kind), list(SETTINGS).index(algorithm), updates


def _text(scores: np.ndarray) -> str:
    ends = interval(interquartile_mean, scores[:, None], BOOTSTRAP)
    between = "" if ends is None else f" [{ends[0]:.1f}, {ends[1]:.1f}]"
    return f"{interquartile_mean(scores):.1f} ± {scores.std():.1f}{between}"


def _line(*columns: str) -> str:
    return f"| {' | '.join(columns)} |"


def _data_line(folder: Path, task: str, kind: str) -> str:
    manifest = open_dataset(str(folder / "data" / task / kind)).manifest
    known = manifest.statistics
    return _line(
        f"{task} {kind}", f"{known.episodes:,}", f"{known.steps:,}", f"{known.returns.mean:.1f}", manifest.fingerprint[:16]
    )
