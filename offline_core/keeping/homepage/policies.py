"""Policies with what was measured of them, decisions between them, and what aliases name."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import Any

from offline_core.data.quality.result import Histogram
from offline_core.errors import ConfigError
from offline_core.judging.decisions.config import BEHAVIOUR
from offline_core.judging.decisions.result import DecisionResult, Difference
from offline_core.judging.estimation.config import METHODS_IN_WORDS
from offline_core.judging.estimation.result import EstimateResult, return_name
from offline_core.keeping.cards import repeating
from offline_core.keeping.contents import Contents
from offline_core.keeping.homepage.page_contents import PageContents
from offline_core.keeping.homepage.runs import parameters_of
from offline_core.keeping.homepage.values import minute, number
from offline_core.learning.config import TrainingConfig
from offline_core.policies.evaluation import EPISODE_METRICS, EvaluationResult
from offline_core.policies.manifest import PolicyManifest
from offline_core.runtime.config import parse
from offline_core.runtime.provenance import RUN
from offline_core.runtime.stage import STAGES

_COMMAND = re.compile(r"^## What ran$.*?^(`{3,})console\n(.*?)\n\1$", re.DOTALL | re.MULTILINE)
"""In the Markdown of a card."""


def policies_of(contents: PageContents) -> dict[str, dict[str, Any]]:
    """The rows of the table of policies by name, the newest first."""
    aliases: dict[str, list[str]] = {}
    for history in contents.histories:
        for alias, move in history.aliases.items():
            aliases.setdefault(move.fingerprint, []).append(f"{history.name}@{alias}")
    order = sorted(contents.policies, key=lambda name: contents.policies[name].created_at, reverse=True)
    return {name or ".": row for name, row in contents.each(order, lambda name: _row(contents, name, aliases))}


def _row(contents: PageContents, name: str, aliases: Mapping[str, list[str]]) -> dict[str, Any]:
    manifest = contents.policies[name]
    evaluations = contents.evaluations.get(name, ())
    return {
        "called": contents.called(name),
        "made": minute(manifest.created_at),
        "by": manifest.operation.stage.replace("_", " "),
        "environment": manifest.environment.id if manifest.environment else "",
        "return": number(manifest.metrics.get("episode_return_mean"), 5),
        "episodes": int(manifest.metrics.get("episodes", 0)),
        "aliases": ", ".join(aliases.get(manifest.fingerprint, [])),
        "evaluations": len(evaluations),
        "evaluated": number(max((evaluation.mean_return for evaluation in evaluations), default=None), 5),
        "estimates": len(contents.estimates.get(name, ())),
    }


def policy_in(contents: PageContents, folder: str) -> dict[str, Any]:
    """The page of one policy beside its row: what made it, what was measured of it, and the decisions on it."""
    manifest = contents.policies[folder]
    evaluations = {contents.name_of(evaluation.uri): evaluation for evaluation in contents.evaluations.get(folder, ())}
    estimates = {contents.name_of(estimate.uri): estimate for estimate in contents.estimates.get(folder, ())}
    run = posixpath.dirname(folder)
    parents = (contents.name_of(parent.uri) + (f" v{parent.version}" if parent.version else "") for parent in manifest.parents)
    is_of_run = run in contents.learned and contents.policy_of(run) is manifest
    return {
        "fingerprint": manifest.fingerprint,
        "run": manifest.provenance.get(RUN, ""),
        "experiment": (run or ".") if is_of_run else None,
        "x": contents.learned[run]["x"] if is_of_run else "",
        "command": _command(contents, run) or _command_of(manifest, contents.root.child(run).uri),
        "parameters": parameters_of(manifest.operation.config),
        "from": [*dict.fromkeys(parents)],
        "evaluations": [entry for _, entry in contents.each(evaluations, lambda file: _evaluation(evaluations[file]))],
        "estimates": [entry for _, entry in contents.each(estimates, lambda file: _estimate(contents, estimates[file]))],
        "decisions": [decision for decision in decisions_of(contents) if manifest.fingerprint in decision["fingerprints"]],
    }


def _command(contents: Contents, run: str) -> str:
    """The command that repeats the run, from the card beside it; empty if there is none."""
    card = posixpath.join(run, "card.md")
    if card not in contents.catalogue.files:
        return ""
    text = contents.tried(card, lambda: contents.catalogue.location(card).read().decode()) or ""
    command = _COMMAND.search(text)
    return "" if command is None else command[2]


def _command_of(manifest: PolicyManifest, output: str) -> str:
    """The command that repeats a training without a card, as of a sweep or of a call in Python; empty for what is none.

    Nor is there one of a training that began with a policy, or by another version of the parameters.
    """
    stage = STAGES.get(manifest.operation.stage)
    if stage is None or stage.name != "train" or {parent.kind for parent in manifest.parents} != {"dataset"}:
        return ""
    known = {name: value for name, value in manifest.operation.config.items() if name in TrainingConfig.model_fields}
    data, *held_out = manifest.parents
    for other in held_out:
        known["evaluation"] = {**known.get("evaluation", {}), "held_out": f"{other.uri}@{other.version}"}
    try:
        config = parse(TrainingConfig, known)
    except ConfigError:
        return ""
    return repeating(stage, config, {"dataset": data.uri, "output": output, "version": data.version})


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


def _estimate(contents: Contents, result: EstimateResult) -> dict[str, Any]:
    card, intervals = result.card(), {"recorded": result.recorded, **result.estimates}
    return {
        "level": card.verdict,
        "status": card.word,
        "told": card.sentence,
        "dataset": f"{contents.name_of(result.dataset.uri)} v{result.dataset.version}",
        "actions": "sampled" if result.explore else "greedy",
        "confidence": number(result.confidence),
        "gamma": number(result.gamma),
        "of": return_name(result.gamma, result.reward),
        "intervals": {
            name: [number(at, 5) for at in (interval.value, interval.low, interval.high)]
            for name, interval in intervals.items()
        },
        "methods": {name: METHODS_IN_WORDS[name] for name in result.estimates if name in METHODS_IN_WORDS},
        "warnings": result.warnings,
    }


def decisions_of(contents: PageContents) -> list[dict[str, Any]]:
    """One entry a decision."""
    decisions = {name: result for name, result in contents.other_results.items() if isinstance(result, DecisionResult)}
    return [entry for _, entry in contents.each(decisions, lambda name: _decision(contents, name, decisions[name]))]


def _decision(contents: PageContents, name: str, result: DecisionResult) -> dict[str, Any]:
    card = result.card()
    return {
        "name": name,
        "verdict": card.word,
        "level": card.verdict,
        "sentence": card.sentence,
        "advice": card.advice,
        "next": card.next,
        "against": "what the log recorded" if result.against == BEHAVIOUR else contents.name_of(result.against),
        "dataset": f"{contents.name_of(result.dataset.uri)} v{result.dataset.version}",
        "selected_on": result.selecting.episodes,
        "judged_on": result.judging.episodes,
        "of": return_name(result.gamma, result.reward),
        "fingerprints": [candidate.fingerprint for candidate in result.candidates],
        "candidates": [
            {
                "name": candidate.name,
                "judged": _interval(candidate.judged),
                "overlap": number(candidate.overlap, 3),
                "reasons": candidate.reasons,
            }
            for candidate in result.candidates
        ],
        "notes": [*result.reasons, *result.warnings],
    }


def _interval(difference: Difference | None) -> list[float | int | None] | None:
    return None if difference is None else [number(bound, 4) for bound in (difference.value, difference.low, difference.high)]


def registry_of(contents: Contents) -> list[dict[str, Any]]:
    """One entry a move of an alias, the newest first."""
    moves = [(history.name, move) for history in contents.histories for move in history.moves]
    return [
        {
            "name": f"{name}@{move.alias}",
            "kind": move.kind,
            "fingerprint": move.fingerprint,
            "from": contents.name_of(move.source),
            "at": minute(move.moved_at),
            "by": move.moved_by,
            "because": move.because,
        }
        for name, move in sorted(moves, key=lambda item: item[1].moved_at, reverse=True)
    ]
