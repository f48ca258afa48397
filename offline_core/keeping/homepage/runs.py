"""Experiments: trainings, experts and fine-tunings, each a row of a table, and its curves."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from offline_core.data.datasets.failure import Failure
from offline_core.data.datasets.result_cache import RESULT_FILE
from offline_core.judging.sweeps.result import RUNS, SweepResult
from offline_core.keeping.homepage.briefs import algorithm_of
from offline_core.keeping.homepage.page_contents import PageContents, curves_of
from offline_core.keeping.homepage.values import Curve, minute, number, thinned
from offline_core.keeping.stored_results import read_result
from offline_core.learning.metrics import METRICS_FILE, progress_of, read_metrics
from offline_core.learning.result import LearnedResult

POINTS = 200_000
"""Of all curves in one file together."""
MOST_POINTS, LEAST_POINTS = 1_000, 12
"""Of one curve."""
CURVES = {"episode_return_mean": "return", "loss": "loss", "held_out_loss": "held-out loss"}
"""What metrics are called that every training has; others are called as they are."""
_NO_CURVES = ("updates", "env_steps", "iteration")
_ELSEWHERE = ("algorithm", "seed", "streamed")
"""Parameters that have a column of their own, or say nothing to people."""
_KINDS = {"train_expert": "expert", "fine_tune": "fine-tuning"}
"""What runs of stages are called; all others are trainings."""
_LONGEST = 200
"""Letters of a value in the table."""

_EMPTY: Mapping[str, Any] = {
    "kind": "training",
    "algorithm": "",
    "setting": "",
    "dataset": "",
    "made": "",
    "x": "updates",
    **dict.fromkeys(("seed", "return", "target", "held_out", "seconds")),
    "episodes": 0,
    "updates": 0,
    "points": {},
    "parameters": {},
    "note": "",
    "called": "",
}
"""The row of a run of which nothing is known."""


def runs_of(contents: PageContents) -> dict[str, dict[str, Any]]:
    """The rows of the table of experiments by name: finished ones first, then those that run or were stopped, or failed."""
    finished = contents.each(contents.learned, lambda name: _finished(contents, name, contents.learned[name]))
    rows = {name or ".": row for name, row in finished}
    going_on = (posixpath.join(name, METRICS_FILE) for name in contents.unfinished)
    read = contents.once if contents.root.is_local else contents.each  # elsewhere, what is new is in files beside it
    rows |= {posixpath.dirname(file) or ".": row for file, row in read(going_on, lambda file: _unfinished(contents, file))}
    for name, failure in contents.failures.items():
        asked = _asked(contents, failure)
        at = {"status": "failed", "level": "bad", "told": failure.sentence, "made": minute(failure.failed_at)}
        rows[name or "."] = {**_EMPTY, **rows.get(name or ".", {}), **asked, **at}
    for name, of_sweep in _failed(contents):
        rows[name] = {**of_sweep, **rows.get(name, {}), **{key: of_sweep[key] for key in ("setting", "seed", "called")}}
    for name, note in contents.notes.items():
        if (name or ".") in rows:
            rows[name or "."] = {**rows[name or "."], "note": note}
    return rows


def _asked(contents: PageContents, failure: Failure) -> dict[str, Any]:
    """What a run that failed was to do; nothing of one that an earlier version kept."""
    if failure.operation is None:
        return {}
    config, kind = failure.operation.config, _KINDS.get(failure.operation.stage, "training")
    versions = {parent.uri: f" v{parent.version}" for parent in failure.parents if parent.kind == "dataset"}
    return {
        "kind": kind,
        "algorithm": algorithm_of(config, kind),
        "dataset": ", ".join(f"{contents.name_of(uri)}{version}" for uri, version in versions.items()),
        "seed": config.get("seed", 0),
        "parameters": parameters_of(config),
    }


def _finished(contents: PageContents, name: str, row: Mapping[str, Any]) -> dict[str, Any]:
    policy = contents.policy_of(name)
    config = {} if policy is None else policy.operation.config
    unswept = None if policy is None else config.get("seed", 0)
    setting, seed = contents.settings.get("/".join(name.split("/")[-2:]), (None, unswept))
    swept = {} if setting is None else setting.parameters
    return {
        **row,
        "note": "",
        "called": "" if setting is None else contents.called(name),
        "algorithm": "" if policy is None else algorithm_of(config, row["kind"]),
        "setting": "" if setting is None else setting.name,
        "parameters": parameters_of({**config, **{path: value for path, value in swept.items() if path not in config}}),
        "seed": seed,
        "made": minute(policy.created_at) if policy else "",
    }


def parameters_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of an operation by their paths; those at their defaults are not in it."""
    flat = {path: value for path, value in _leaves(config) if path.partition(".")[0] not in _ELSEWHERE}
    return {path: number(value) if isinstance(value, float) else value for path, value in flat.items()}


def _leaves(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{above}{name}.")
        elif isinstance(value, bool | int | float) or value is None:
            yield f"{above}{name}", value
        else:
            yield f"{above}{name}", (value if isinstance(value, str) else json.dumps(value, default=str))[:_LONGEST]


def _unfinished(contents: PageContents, file: str) -> dict[str, Any]:
    records = read_metrics(contents.catalogue.location(posixpath.dirname(file)))
    curves = _series(records)
    if contents.curves is not None:
        contents.curves[posixpath.dirname(file)] = {name: curve for name, curve in curves.items() if name in CURVES.values()}
    changed = contents.catalogue.files[file].changed_ns
    return {
        **_EMPTY,
        "status": "not finished",
        "level": "fair",
        "told": "It runs, or was stopped.",
        "return": number(max((value for _, value in curves.get("return", ())), default=None), 5),
        "updates": max((int(record["updates"]) for record in records), default=0),
        "x": "environment steps" if any("env_steps" in record for record in records) else "updates",
        "points": {name: len(curve) for name, curve in curves.items()},
        "made": minute(datetime.fromtimestamp(changed / 1e9, UTC)) if changed else "",
    }


def _failed(contents: PageContents) -> Iterator[tuple[str, dict[str, Any]]]:
    """The runs of sweeps that ended in an error, with its sentence; by their folders, if they left one that says the same."""
    for folder, sweep in contents.other_results.items():
        own = posixpath.join(folder, RUNS, "")
        left = {name: failure.error for name, failure in contents.failures.items() if name.startswith(own)}
        for run in sweep.failures if isinstance(sweep, SweepResult) else ():
            told = f"{run.error}{' It may pass if it is run again.' if run.may_pass else ''}"
            called = f"{folder or '.'}: {run.setting}, seed {run.seed}"
            said = {
                "status": "failed",
                "level": "bad",
                "told": told,
                "setting": run.setting,
                "seed": run.seed,
                "called": called,
            }
            name = next((name for name, error in left.items() if error == run.error and name.endswith(f"/{run.seed}")), None)
            if name is not None:
                del left[name]
            yield name or called, {**_EMPTY, **said}


def curves_in(contents: PageContents, name: str, points: int = MOST_POINTS) -> dict[str, Any] | None:
    """The curves of one experiment by name, each [xs, ys] of at most so many points; None: there is none of that name.

    Where the curves of all are wanted, those are not among them that only the metrics of a run tell.
    """
    folder = "" if name == "." else name
    if folder not in contents.learned and folder not in contents.unfinished:
        return None
    curves = _read_curves(contents, folder) if contents.curves is None else contents.curves.get(folder, {})
    return {name: thinned(curve, points) for name, curve in curves.items() if curve}


def _read_curves(contents: PageContents, folder: str) -> dict[str, Curve]:
    has_metrics = posixpath.join(folder, METRICS_FILE) in contents.catalogue.files
    curves = _series(read_metrics(contents.catalogue.location(folder)) if has_metrics else [])
    if folder in contents.learned:
        result = read_result(contents.catalogue.location(posixpath.join(folder, RESULT_FILE)))
        kept = curves_of(result) if isinstance(result, LearnedResult) else {}
        curves |= {name: curve for name, curve in kept.items() if len(curve) >= len(curves.get(name, ()))}
    return curves


def _series(records: list[dict[str, Any]]) -> dict[str, Curve]:
    curves: dict[str, list[tuple[int, float]]] = {}
    for record in records:
        for name, value in record.items():
            if name not in _NO_CURVES:
                curves.setdefault(CURVES.get(name, name), []).append((progress_of(record), float(value)))
    return dict(curves)
