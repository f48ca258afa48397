"""Experiments: trainings, experts and fine-tunings, each a row with its curves."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

from offline_core.judging.sweeps.result import SweepResult, SweptSetting
from offline_core.keeping.contents import Contents
from offline_core.keeping.homepage.values import Curve, minute, number, thinned
from offline_core.learning.experts.result import ExpertResult
from offline_core.learning.fine_tuning.result import FineTuneResult
from offline_core.learning.metrics import METRICS_FILE, progress_of, read_metrics
from offline_core.learning.result import LearnedResult, TrainingResult

POINTS = 200_000
"""Of all curves together."""
MOST_POINTS, LEAST_POINTS = 200, 12
"""Of one curve."""
KINDS: Mapping[type[LearnedResult], str] = {TrainingResult: "training", ExpertResult: "expert", FineTuneResult: "fine-tuning"}


def runs_of(found: Contents) -> dict[str, list[Any]]:
    """The columns of the table of experiments, finished ones first by name, then those that run or were stopped."""
    finished = {name: each for name, each in found.results.items() if isinstance(each, LearnedResult)}
    rows = len(finished) + len(found.unfinished)
    points = max(LEAST_POINTS, min(MOST_POINTS, POINTS // max(1, 2 * rows)))
    settings = _settings(found)
    table = [row for _, row in found.each(finished, lambda name: _finished(found, name, finished[name], settings, points))]
    going_on = (posixpath.join(name, METRICS_FILE) for name in found.unfinished)
    table += [row for _, row in found.each(going_on, lambda name: _unfinished(found, posixpath.dirname(name), points))]
    return {column: [row[column] for row in table] for column in (table[0] if table else ())}


def _settings(found: Contents) -> dict[str, tuple[SweptSetting, int]]:
    """The setting and seed of each run of a sweep, by the last names of its folder, which stay if a root is moved."""
    return {
        "/".join(run.checkpoint.split("/")[-3:-1]): (setting, run.seed)
        for sweep in found.results.values()
        if isinstance(sweep, SweepResult)
        for setting in sweep.settings
        for run in setting.runs
    }


def _finished(
    found: Contents, name: str, result: LearnedResult, settings: Mapping[str, tuple[SweptSetting, int]], points: int
) -> dict[str, Any]:
    policy = found.policy_of(name)
    card = result.card()
    setting, seed = settings.get("/".join(name.split("/")[-2:]), (None, None))
    losses, held_out = (result.losses, result.held_out_losses) if isinstance(result, TrainingResult) else ([], [])
    return {
        "name": name or ".",
        "kind": KINDS[type(result)],
        "algorithm": found.algorithm_of(name),
        "setting": "" if setting is None else setting.name,
        "parameters": {}
        if setting is None
        else {path: each for path, each in setting.parameters.items() if path != "algorithm"},
        "seed": seed,
        "dataset": f"{found.name_of(result.dataset.uri)} v{result.dataset.version}"
        if isinstance(result, TrainingResult)
        else "",
        "status": card.word,
        "level": card.verdict,
        "told": card.sentence,
        "return": number(result.mean_return, 5),
        "episodes": int(result.metrics.get("episodes", 0)),
        "target": number(result.target_return),
        "held_out": number(held_out[-1][1] if held_out else None, 4),
        "updates": result.updates,
        "seconds": number(result.seconds, 4),
        "made": minute(policy.created_at) if policy else "",
        "x": result.unit,
        "curves": _curves({"return": result.curve, "loss": losses, "held-out loss": held_out}, points),
    }


def _unfinished(found: Contents, name: str, points: int) -> dict[str, Any]:
    place = found.catalogue.place(posixpath.join(name, METRICS_FILE))
    changed = place.filesystem.get_file_info(place.path).mtime
    records = read_metrics(found.catalogue.place(name))
    curve = _series(records, "episode_return_mean")
    return {
        "name": name or ".",
        "kind": "training",
        "algorithm": "",
        "setting": "",
        "parameters": {},
        "seed": None,
        "dataset": "",
        "status": "not finished",
        "level": "fair",
        "told": "It runs, or was stopped.",
        "return": number(max((value for _, value in curve), default=None), 5),
        "episodes": 0,
        "target": None,
        "held_out": None,
        "updates": max((int(record["updates"]) for record in records), default=0),
        "seconds": None,
        "made": minute(changed) if changed else "",
        "x": "environment steps" if any("env_steps" in record for record in records) else "updates",
        "curves": _curves(
            {"return": curve, "loss": _series(records, "loss"), "held-out loss": _series(records, "held_out_loss")}, points
        ),
    }


def _series(records: Sequence[Mapping[str, Any]], name: str) -> list[tuple[int, float]]:
    return [(progress_of(record), float(record[name])) for record in records if name in record]


def _curves(curves: Mapping[str, Curve], points: int) -> dict[str, Any]:
    return {name: thinned(curve, points) for name, curve in curves.items() if curve}
