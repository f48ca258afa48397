"""A page of the cells of a folder: scores with intervals, and speeds, of each side."""

from __future__ import annotations

import datetime
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.figure import environment
from benchmarks.reference.suite import KINDS, SETTINGS, SIDES, TASKS
from offline_core.datasets.dataset import open_dataset
from offline_core.sweeps.statistics import Bootstrap, interval

RESULTS = Path(__file__).parent.parent / "results"
BOOTSTRAP = Bootstrap(resamples=2_000, confidence=0.95, seed=0)

Runs = dict[str, list[dict[str, Any]]]
"""By side, in order of seeds."""


def write_page(folder: Path) -> Path:
    """Write benchmarks/results/DATE-reference.md from all cells below `folder`; return its path."""
    cells = _cells(folder)
    machine = environment("torch", "gymnasium", "mujoco")
    lines = [
        f"# Reference, {datetime.date.today()}",
        "",
        "Ours and d3rlpy 2.8 on the same files: same networks, batches, rates and number of updates",
        "(benchmarks/reference/suite.py), a process and a thread each, both at the same time. A score is that of the last",
        "policy: 100 · (return - random) / (expert - random) with D4RL's returns, the mean of 10 greedy episodes from the same",
        "starts; ± is the standard deviation of the seeds, [low, high] a bootstrap interval of 95 % over them. Speeds are",
        "updates a CPU second, the reading of the data included.",
        "",
        " ".join(f"{name}: {value}." for name, value in machine.items()),
        "",
        "| data | algorithm | updates | seeds | ours | d3rlpy | in or above d3rlpy's interval | ours / d3rlpy, speed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    inside = []
    for (task, kind, algorithm, updates), runs in sorted(cells.items(), key=_place):
        if any(not runs[side] for side in SIDES):
            continue
        scores = {side: _scores(task, runs[side]) for side in SIDES}
        low = (interval(_mean, scores["d3rlpy"][:, None], BOOTSTRAP) or (scores["d3rlpy"].min(), 0))[0]
        inside.append(bool(scores["ours"].mean() >= low))
        speeds = {side: sum(r["updates"] for r in runs[side]) / sum(r["cpu_seconds"] for r in runs[side]) for side in SIDES}
        columns = [f"{task} {kind}", algorithm, f"{updates:,}", str(len(runs["ours"])), *map(_text, scores.values())]
        ratio = f"{speeds['ours']:.0f} / {speeds['d3rlpy']:.0f} = {speeds['ours'] / speeds['d3rlpy']:.2f}"
        lines.append(f"| {' | '.join([*columns, 'yes' if inside[-1] else 'no', ratio])} |")
    run = {key[:3] for key, runs in cells.items() if all(runs[side] for side in SIDES)}
    missing = {f"{task} {kind}": _not_run(task, kind, run) for task in TASKS for kind in KINDS}
    lines += ["", f"In or above the interval: {sum(inside)} of {len(inside)} cells.", ""]
    lines += [
        "Data, by our own flow from fixed seeds:",
        "",
        "| data | episodes | steps | mean return | fingerprint |",
        "|---|---|---|---|---|",
    ]
    lines += [_data_line(folder, task, kind) for task in TASKS for kind in KINDS if (folder / "data" / task / kind).exists()]
    lines += [
        "",
        f"Missing: {'; '.join(f'{data} ({names})' for data, names in missing.items() if names)}; the CORL-style side.",
        "",
    ]
    file = RESULTS / f"{datetime.date.today()}-reference.md"
    file.write_text("\n".join(lines))
    return file


def _not_run(task: str, kind: str, run: set[tuple[str, str, str]]) -> str:
    """The algorithms that both sides have not run on this data, or "all"."""
    names = [algorithm for algorithm in TASKS[task].algorithms if (task, kind, algorithm) not in run]
    return "all" if names == TASKS[task].algorithms else ", ".join(names)


def _cells(folder: Path) -> dict[tuple[str, str, str, str], Runs]:
    """By task, kind, algorithm and updates."""
    found: dict[Any, Runs] = defaultdict(lambda: {side: [] for side in SIDES})
    for file in sorted((folder / "cells").glob("*.json")):
        name, side = file.stem.rsplit("-", 1)
        task, rest = name.split("-", 1)
        kind, algorithm, updates, _seed = rest.rsplit("-", 3)
        found[task, kind, algorithm, int(updates)][side].append(json.loads(file.read_text()))
    return found


def _place(item: tuple[Any, Runs]) -> tuple[int, int, int, int]:
    (task, kind, algorithm, updates), _ = item
    return list(TASKS).index(task), KINDS.index(kind), list(SETTINGS).index(algorithm), updates


def _scores(task: str, runs: list[dict[str, Any]]) -> np.ndarray:
    return np.array([TASKS[task].score(float(np.mean(run["returns"]))) for run in runs])


def _mean(scores: np.ndarray) -> np.ndarray:
    found: np.ndarray = scores.mean(axis=-1)
    return found


def _text(scores: np.ndarray) -> str:
    ends = interval(_mean, scores[:, None], BOOTSTRAP)
    between = "" if ends is None else f" [{ends[0]:.1f}, {ends[1]:.1f}]"
    return f"{scores.mean():.1f} ± {scores.std():.1f}{between}"


def _data_line(folder: Path, task: str, kind: str) -> str:
    manifest = open_dataset(str(folder / "data" / task / kind)).manifest
    known = manifest.statistics
    return f"| {task} {kind} | {known.episodes:,} | {known.steps:,} | {known.returns.mean:.1f} | {manifest.fingerprint[:16]} |"
