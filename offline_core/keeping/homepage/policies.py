"""Policies with what was measured of them, decisions between them, and what aliases name."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import Any

from offline_core.data.quality.result import Histogram
from offline_core.judging.decisions.result import DecisionResult, Difference
from offline_core.judging.estimation.result import OffPolicyResult, return_name
from offline_core.keeping.contents import Contents
from offline_core.keeping.homepage.found import Found
from offline_core.keeping.homepage.runs import parameters_of
from offline_core.keeping.homepage.values import minute, number
from offline_core.policies.evaluation.result import EPISODE_METRICS, EvaluationResult
from offline_core.runtime.provenance import RUN

_COMMAND = re.compile(r"^## What ran$.*?^(`{3,})console\n(.*?)\n\1$", re.DOTALL | re.MULTILINE)
"""In the Markdown of a card."""


def policies_of(found: Contents) -> dict[str, dict[str, Any]]:
    """The rows of the table of policies by name, the newest first."""
    aliases: dict[str, list[str]] = {}
    for history in found.histories:
        for alias, move in history.aliases.items():
            aliases.setdefault(move.fingerprint, []).append(f"{history.name}@{alias}")
    order = sorted(found.policies, key=lambda name: found.policies[name].created_at, reverse=True)
    return {name or ".": row for name, row in found.each(order, lambda name: _row(found, name, aliases))}


def _row(found: Contents, name: str, aliases: Mapping[str, list[str]]) -> dict[str, Any]:
    manifest = found.policies[name]
    evaluations = found.evaluations.get(name, ())
    return {
        "made": minute(manifest.created_at),
        "by": manifest.operation.stage.replace("_", " "),
        "environment": manifest.environment.id if manifest.environment else "",
        "return": number(manifest.metrics.get("episode_return_mean"), 5),
        "episodes": int(manifest.metrics.get("episodes", 0)),
        "aliases": ", ".join(aliases.get(manifest.fingerprint, [])),
        "evaluations": len(evaluations),
        "evaluated": number(max((each.mean_return for each in evaluations), default=None), 5),
        "estimates": len(found.estimates.get(name, ())),
    }


def policy_in(found: Found, folder: str) -> dict[str, Any]:
    """The page of one policy beside its row: what made it, what was measured of it, and the decisions on it."""
    manifest = found.policies[folder]
    evaluations = {found.name_of(each.uri): each for each in found.evaluations.get(folder, ())}
    estimates = {found.name_of(each.uri): each for each in found.estimates.get(folder, ())}
    run = posixpath.dirname(folder)
    parents = (found.name_of(each.uri) + (f" v{each.version}" if each.version else "") for each in manifest.parents)
    is_of_run = run in found.learned and found.policy_of(run) is manifest
    return {
        "fingerprint": manifest.fingerprint,
        "run": manifest.provenance.get(RUN, ""),
        "experiment": (run or ".") if is_of_run else None,
        "x": found.learned[run]["x"] if is_of_run else "",
        "command": _command(found, run),
        "parameters": parameters_of(manifest.operation.config),
        "from": [*dict.fromkeys(parents)],
        "evaluations": [entry for _, entry in found.each(evaluations, lambda file: _evaluation(evaluations[file]))],
        "estimates": [entry for _, entry in found.each(estimates, lambda file: _estimate(found, estimates[file]))],
        "decisions": [each for each in decisions_of(found) if manifest.fingerprint in each["fingerprints"]],
    }


def _command(found: Contents, run: str) -> str:
    """The command that repeats the run, from the card beside it; empty if there is none."""
    card = posixpath.join(run, "card.md")
    if card not in found.catalogue.files:
        return ""
    text = found.tried(card, lambda: found.catalogue.place(card).read().decode()) or ""
    command = _COMMAND.search(text)
    return "" if command is None else command[2]


def _evaluation(result: EvaluationResult) -> dict[str, Any]:
    import numpy as np

    card, metrics = result.card(), result.metrics
    return {
        "level": card.verdict,
        "status": card.word,
        "told": card.sentence,
        "environment": result.environment,
        "mean": number(result.mean_return, 5),
        "std": number(metrics["episode_return_std"], 4),
        "episodes": int(metrics["episodes"]),
        "more": {name: number(value, 4) for name, value in metrics.items() if name not in EPISODE_METRICS},
        "returns": Histogram.of(np.asarray(result.returns, np.float64), 20).model_dump(),
    }


def _estimate(found: Contents, result: OffPolicyResult) -> dict[str, Any]:
    card, intervals = result.card(), {"recorded": result.recorded, **result.estimates}
    return {
        "level": card.verdict,
        "status": card.word,
        "told": card.sentence,
        "dataset": f"{found.name_of(result.dataset.uri)} v{result.dataset.version}",
        "actions": "sampled" if result.explore else "greedy",
        "confidence": number(result.confidence),
        "gamma": number(result.gamma),
        "of": return_name(result.gamma, result.reward),
        "intervals": {name: [number(at, 5) for at in (each.value, each.low, each.high)] for name, each in intervals.items()},
        "warnings": result.warnings,
    }


def decisions_of(found: Found) -> list[dict[str, Any]]:
    """One entry a decision."""
    decisions = {name: result for name, result in found.other_results.items() if isinstance(result, DecisionResult)}
    return [entry for _, entry in found.each(decisions, lambda name: _decision(found, name, decisions[name]))]


def _decision(found: Found, name: str, result: DecisionResult) -> dict[str, Any]:
    card = result.card()
    return {
        "name": name,
        "verdict": card.word,
        "level": card.verdict,
        "sentence": card.sentence,
        "against": found.name_of(result.against),
        "dataset": f"{found.name_of(result.dataset.uri)} v{result.dataset.version}",
        "selected_on": result.selecting.episodes,
        "judged_on": result.judging.episodes,
        "of": return_name(result.gamma, result.reward),
        "fingerprints": [each.fingerprint for each in result.candidates],
        "candidates": [
            {"name": each.name, "judged": _interval(each.judged), "overlap": number(each.overlap, 3), "reasons": each.reasons}
            for each in result.candidates
        ],
        "notes": [*result.reasons, *result.warnings],
    }


def _interval(difference: Difference | None) -> list[float | int | None] | None:
    return None if difference is None else [number(each, 4) for each in (difference.value, difference.low, difference.high)]


def registry_of(found: Contents) -> list[dict[str, Any]]:
    """One entry a move of an alias, the newest first."""
    moves = [(history.name, move) for history in found.histories for move in history.moves]
    return [
        {
            "name": f"{name}@{move.alias}",
            "kind": move.kind,
            "fingerprint": move.fingerprint,
            "from": found.name_of(move.source),
            "at": minute(move.moved_at),
            "by": move.moved_by,
            "because": move.because,
        }
        for name, move in sorted(moves, key=lambda item: item[1].moved_at, reverse=True)
    ]
