"""Decisions on logs whose truth is known: false promotions, coverage, power, regret, and logs that must be refused.

    python -m benchmarks.decisions FOLDER [--first-seed 0] [--logs 72] [--updates 400]

Each log has eight candidates; see `benchmarks.decisions.logs`. What is in FOLDER is not made again, so a run can be cut.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.decisions.logs import Log, Made, all_logs, make
from benchmarks.figure import figure
from offline_core.judging.decisions.config import DecisionConfig
from offline_core.judging.decisions.decide import decide
from offline_core.judging.decisions.result import DecisionResult
from offline_core.runtime.config import parse

CLEAR = 0.2
"""An improvement by this share of the behaviour's value is a clear one."""
LONG = 500
SMALL = {"hidden_sizes": [32, 32], "activation": "relu", "normalize_observations": True}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--logs", type=int, default=None, help="only the first so many of a fixed shuffle")
    parser.add_argument("--first-seed", type=int, default=0, help="of the logs: others are played by others")
    parser.add_argument("--updates", type=int, default=400, help="of each Q function")
    parser.add_argument("--settings", default="{}", help="parameters of the decision, as JSON")
    parser.add_argument("--name", default="decisions", help="folder of the decisions, below FOLDER")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    logs = all_logs(arguments.first_seed)
    logs = [logs[number] for number in np.random.default_rng(0).permutation(len(logs))][: arguments.logs]
    rows = []
    for log in logs:
        made = make(log, arguments.folder)
        start = time.process_time()
        result = decided(
            log, made, arguments.folder / arguments.name / log.name, arguments.updates, json.loads(arguments.settings)
        )
        rows.append(row(log, made, result) | {"seconds": time.process_time() - start})
        print(json.dumps(rows[-1]), flush=True)
    report(rows)


def decided(log: Log, made: Made, output: Path, updates: int, settings: dict[str, Any]) -> DecisionResult:
    """The decision on one log."""
    fqe = {"updates": updates, "learning_rate": 3e-3, "batch_size": 128, "network": SMALL}
    config = parse(DecisionConfig, {"seed": log.seed, "estimate": {"gamma": 0.97, "fqe": fqe}} | settings)
    return decide(config, dataset=made.data, candidates=made.candidates, output=str(output))


def row(log: Log, made: Made, result: DecisionResult) -> dict[str, Any]:
    """Return what came of the decision next to what is true."""
    truth = dict(zip(made.candidates, (value - made.behaviour_value for value in made.values), strict=True))
    order = [candidate.checkpoint for candidate in result.candidates]
    fqe = max(result.candidates, key=lambda candidate: candidate.estimates.get("fqe", -np.inf)).checkpoint
    judged = (
        [candidate for candidate in result.candidates if candidate.judged and not candidate.reasons]
        if result.verdict != "refused"
        else []
    )
    covered = [
        candidate.judged.low <= truth[candidate.checkpoint] <= candidate.judged.high for candidate in judged if candidate.judged
    ]
    best, scale = max(truth.values()), abs(made.behaviour_value)
    tested = [result.checkpoint] if result.verdict == "promote" else result.worth_testing
    return {
        "log": log.name,
        "verdict": result.verdict,
        "must_be_refused": log.must_be_refused,
        "episodes": log.episodes,
        "false_promotion": result.verdict == "promote" and truth[result.checkpoint] <= 0,
        "difference": truth[result.checkpoint],
        "tails": [(candidate.judged.tail, candidate.judged.tail_error) for candidate in judged if candidate.judged],
        "best": best / scale,
        "clear": best >= CLEAR * scale and log.episodes >= LONG and not log.must_be_refused,
        "found": any(truth[uri] > 0 for uri in tested),
        "covered": covered,
        "regret1": (best - truth[order[0]]) / scale,
        "regret3": (best - max(truth[uri] for uri in order[:3])) / scale,
        "last1": (best - truth[made.candidates[-1]]) / scale,
        "last3": (best - max(truth[uri] for uri in made.candidates[-3:])) / scale,
        "fqe1": (best - truth[fqe]) / scale,
        "regret_promoted": (best - truth[result.checkpoint]) / scale if result.verdict == "promote" else None,
        "needed": result.episodes_needed,
        "sentence": result.sentence[:200],
    }


def report(rows: list[dict[str, Any]]) -> None:
    """The figures over all logs."""
    sound = [decision for decision in rows if not decision["must_be_refused"]]
    clear = [decision for decision in sound if decision["clear"]]
    covered = [inside for decision in sound for inside in decision["covered"]]
    unsound = [decision for decision in rows if decision["must_be_refused"]]
    promotions = sum(decision["verdict"] == "promote" for decision in rows)
    figure(
        "decisions.false_promotions",
        np.mean([decision["false_promotion"] for decision in rows]),
        "share",
        of=len(rows),
        made=promotions,
    )
    figure("decisions.coverage", np.mean(covered) if covered else np.nan, "share", of=len(covered))
    figure("decisions.power", np.mean([decision["found"] for decision in clear]) if clear else np.nan, "share", of=len(clear))
    for name in ("regret1", "regret3", "last1", "last3", "fqe1"):
        figure(f"decisions.{name}", np.mean([decision[name] for decision in sound]), "of the behaviour's value")
    figure(
        "decisions.silent",
        sum(decision["verdict"] != "refused" for decision in unsound),
        "logs",
        of=len(unsound),
    )
    for verdict in ("promote", "test", "collect", "keep", "refused"):
        figure(f"decisions.verdicts.{verdict}", sum(decision["verdict"] == verdict for decision in sound), "logs")


if __name__ == "__main__":
    main()
