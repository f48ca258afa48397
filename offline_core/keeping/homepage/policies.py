"""Policies with what was measured of them, decisions between them, and what aliases name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from offline_core.data.quality.result import Histogram
from offline_core.judging.decisions.result import DecisionResult, Difference
from offline_core.judging.estimation.result import OffPolicyResult, return_name
from offline_core.keeping.contents import Contents
from offline_core.keeping.homepage.values import minute, number
from offline_core.policies.evaluation.result import EPISODE_METRICS, EvaluationResult
from offline_core.runtime.provenance import RUN


def policies_of(found: Contents) -> list[dict[str, Any]]:
    """One entry a policy, the newest first."""
    aliases: dict[str, list[str]] = {}
    for history in found.histories:
        for alias, move in history.aliases.items():
            aliases.setdefault(move.fingerprint, []).append(f"{history.name}@{alias}")
    order = sorted(found.policies, key=lambda name: found.policies[name].created_at, reverse=True)
    return [entry for _, entry in found.each(order, lambda name: _policy(found, name, aliases))]


def _policy(found: Contents, name: str, aliases: Mapping[str, list[str]]) -> dict[str, Any]:
    manifest = found.policies[name]
    evaluations = {found.name_of(each.uri): each for each in found.evaluations.get(name, ())}
    estimates = {found.name_of(each.uri): each for each in found.estimates.get(name, ())}
    return {
        "name": name or ".",
        "fingerprint": manifest.fingerprint,
        "made": minute(manifest.created_at),
        "by": manifest.operation.stage.replace("_", " "),
        "run": manifest.provenance.get(RUN, ""),
        "environment": manifest.environment.id if manifest.environment else "",
        "return": number(manifest.metrics.get("episode_return_mean"), 5),
        "episodes": int(manifest.metrics.get("episodes", 0)),
        "aliases": ", ".join(aliases.get(manifest.fingerprint, [])),
        "evaluations": [entry for _, entry in found.each(evaluations, lambda file: _evaluation(evaluations[file]))],
        "estimates": [entry for _, entry in found.each(estimates, lambda file: _estimate(found, estimates[file]))],
    }


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


def decisions_of(found: Contents) -> list[dict[str, Any]]:
    """One entry a decision."""
    decisions = {name: result for name, result in found.results.items() if isinstance(result, DecisionResult)}
    return [entry for _, entry in found.each(decisions, lambda name: _decision(found, name, decisions[name]))]


def _decision(found: Contents, name: str, result: DecisionResult) -> dict[str, Any]:
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
