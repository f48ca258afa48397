"""Which run a sweep names the best: by the judgement that decisions select by, beside each run's own estimate.

    python -m benchmarks.decisions.sweeps FOLDER [--first-seed 0] [--logs 15] [--updates 400]

Each sweep trains on one half of a log, and estimates on the other. Beside what it names, and the best by each own estimate: the
best among the runs that a decision would not refuse (judged alone). Regret is what the named policy is worth less than the best
one that the sweep has trained, as a share of the behaviour's value; the log's simulator tells both. What is in FOLDER is not
made again, so a run can be cut.
"""

from __future__ import annotations

import argparse
import itertools
import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

import offline_core as offline
from benchmarks.decisions.logs import Log, behaviour_and_goal, write
from benchmarks.decisions.simulators import PLAYED, WORLDS, value_of
from benchmarks.figure import figure
from offline_core.judging.sweeps.result import SweptRun
from offline_core.policies.checkpoint import load_policy

OWN = ("wis", "fqe", "wdr")
"""Methods of an estimate that could rank runs, each by itself."""
SMALL = {"hidden_sizes": [32, 32], "activation": "relu", "normalize_observations": True}
TRAINING: dict[str, Any] = {
    "network": {"hidden_sizes": [32], "normalize_observations": True},
    "optimizer": {"batch_size": 256, "max_updates": 400, "learning_rate": 3e-3, "updates_per_iteration": 400},
    "data": {"prelearners": 0},
    "evaluation": {"play": False},
}
GRID = {"algorithm": ["bc", "marwil", "iql"], "marwil.beta": [1.0, 10.0], "iql.beta": [3.0, 30.0]}


def all_logs(first_seed: int) -> list[Log]:
    """Fifteen: of three worlds, short and long ones, with probabilities and without."""
    numbers = itertools.count(first_seed)
    kinds = (
        (100, "random", True),
        (300, "medium", True),
        (300, "near", True),
        (600, "medium", False),
        (1_000, "random", True),
    )
    return [Log(world, *kind, next(numbers)) for kind in kinds for world in PLAYED]


def swept(log: Log, folder: Path, updates: int) -> dict[str, Any]:
    """Return what is named the best on one log next to what is true."""
    log_folder = folder / "sweeps" / log.name
    world = WORLDS[log.world]()
    behaviour, _ = behaviour_and_goal(log, world, np.random.default_rng(log.seed))
    if not (log_folder / "data").exists():
        write(world, behaviour, log, log_folder / "data")
    train, held_out = offline.split(log_folder / "data", output=log_folder / "split", held_out_fraction=0.5)
    fqe = {"updates": updates, "learning_rate": 3e-3, "batch_size": 128, "network": SMALL}
    estimate = {"gamma": world.gamma, "fqe": fqe}
    start = time.process_time()
    result = offline.sweep(
        train,
        output=log_folder / "out",
        training=TRAINING,
        grid=GRID,
        seeds=1,
        parallel=1,
        score="estimate",
        estimate=estimate,
        estimate_on=held_out.location.uri,
    )
    seconds = time.process_time() - start
    runs = [run for setting in result.settings for run in setting.runs]
    values = {run.checkpoint: value_of(world, load_policy(run.checkpoint)) for run in runs}
    start = time.process_time()
    scores = {"sweep": {run.checkpoint: run.score for run in runs}} | _own(log, runs, held_out, estimate)
    scores |= {"judged alone": {run.checkpoint: run.score for run in runs if run.reason is None}}
    seconds_own = time.process_time() - start
    named = {name: max(of, key=of.__getitem__) for name, of in scores.items() if of} | {"sweep": result.best}
    scale, best = abs(value_of(world, behaviour)), max(values.values())
    return {
        "log": log.name,
        "regret": {name: round((best - values[uri]) / scale, 4) for name, uri in named.items()}
        | {"any": round((best - float(np.mean([*values.values()]))) / scale, 4)},
        "error": {name: round(_error(of, values) / scale, 4) for name, of in scores.items() if of},
        "spread": round((best - min(values.values())) / scale, 4),
        "unjudged": sum(run.reason is not None for run in runs),
        "reasons": sorted({str(run.reason)[:60] for run in runs if run.reason}),
        "seconds": round(seconds, 1),
        "seconds_own": round(seconds_own, 1),
    }


def _own(log: Log, runs: list[SweptRun], data: Any, estimate: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Return by method what each run's own estimate says; without probabilities of the actions only fqe says something."""
    methods = [*OWN] if log.known else ["fqe"]
    scores: dict[str, dict[str, float]] = {name: {} for name in methods}
    for run in runs:
        for name, estimated in offline.estimate(run.checkpoint, data, methods=methods, **estimate).estimates.items():
            scores[name][run.checkpoint] = estimated.value
    return scores


def _error(scores: Mapping[str, float], values: Mapping[str, float]) -> float:
    """Root mean square, of what policies are said to be worth."""
    return float(np.sqrt(np.mean([(score - values[uri]) ** 2 for uri, score in scores.items()])))


def report(rows: list[dict[str, Any]]) -> None:
    """Means over the logs that each can say something of, and of what the sweep named on the same logs."""
    for name in ("judged alone", *OWN, "any"):
        own = [row["regret"] for row in rows if name in row["regret"]]
        regret, beside = (round(float(np.mean([regrets[which] for regrets in own])), 4) for which in (name, "sweep"))
        worse, better = (sum(sign * (regrets["sweep"] - regrets[name]) > 0 for regrets in own) for sign in (1, -1))
        figure(
            f"sweeps.regret.{name}",
            regret,
            "of the behaviour's value",
            of=len(own),
            sweep=beside,
            sweep_better=better,
            sweep_worse=worse,
        )
    for name in ("sweep", *OWN):
        errors = [row["error"][name] for row in rows if name in row["error"]]
        figure(f"sweeps.error.{name}", float(np.median(errors)), "of the behaviour's value, median", of=len(errors))
    figure("sweeps.unjudged", sum(row["unjudged"] for row in rows), "runs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--logs", type=int, default=None, help="only the first so many")
    parser.add_argument("--first-seed", type=int, default=0, help="of the logs: others are played by others")
    parser.add_argument("--updates", type=int, default=400, help="of each Q function")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    rows = []
    for log in all_logs(arguments.first_seed)[: arguments.logs]:
        rows.append(swept(log, arguments.folder, arguments.updates))
        print(json.dumps(rows[-1]), flush=True)
    report(rows)


if __name__ == "__main__":
    main()
