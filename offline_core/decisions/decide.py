"""Decide which of several policies may replace what runs today, from a log that none of them was chosen by."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import gymnasium as gym
import numpy as np

from offline_core.curation.config import SplitConfig
from offline_core.curation.split import split_dataset
from offline_core.datasets.dataset import Dataset, open_committed, open_dataset
from offline_core.datasets.episode_index import episode_index
from offline_core.datasets.manifest import Operation, identity_of
from offline_core.datasets.result_cache import RESULT_FILE, invalidate_result, load_result, store_result
from offline_core.decisions import diagnosis
from offline_core.decisions.behaviour import examine, model_of_behaviour
from offline_core.decisions.comparison import combined
from offline_core.decisions.config import BEHAVIOUR, DecisionConfig
from offline_core.decisions.evidence import Side
from offline_core.decisions.names import readable_names
from offline_core.decisions.overlap import overlap_of, regions, supported
from offline_core.decisions.result import Candidate, DecisionResult, Difference, GuardrailFinding
from offline_core.decisions.verdict import rule
from offline_core.episodes import columns
from offline_core.errors import ConfigError
from offline_core.estimation import diagnostics
from offline_core.estimation.config import Method
from offline_core.estimation.estimate import check_policies
from offline_core.estimation.estimators import METHODS, unrecorded_share
from offline_core.estimation.evidence import Evidence
from offline_core.estimation.influence import influence
from offline_core.estimation.logged import LOG_RATIOS, has_probabilities
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.encoder import leaf_spaces
from offline_core.policies.lineage import lineage
from offline_core.policies.manifest import PolicyManifest, find_policy, fingerprint_of
from offline_core.policies.policy import Policy
from offline_core.storage.location import Location

log = logging.getLogger(__name__)

CARRIED = 10
SIDES, MODEL = "sides", "behaviour"
"""Folders inside the decision's: both sides of the log, and the model of what acted."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A candidate with its weights."""

    uri: str
    name: str
    manifest: PolicyManifest
    policy: Policy


def decide(
    config: DecisionConfig, *, dataset: str, candidates: Sequence[str], output: str, version: int | None = None
) -> DecisionResult:
    """Hold candidates against what runs today, on episodes that none of them learned from or was chosen by.

    One side of the log ranks the candidates, the other judges the first of them: the difference to what runs today on the
    same episodes, by wdr with cross-fitting, at a risk over all that are judged. What cannot be judged is refused.

    Arguments:
        dataset: URI of the log.
        candidates: URIs of checkpoints, or addresses of registered ones.
        output: folder of the decision: `result.json`, both sides of the log, and the model of the behaviour if it needs one.
        version: of the dataset, the latest if None.

    Raises:
        CheckpointError: A candidate cannot be read.
        ConfigError: A policy does not fit the data, or a guardrail its columns.
        DataError: The log is not what it has to be, or has too few episodes for two sides.
    """
    start = time.perf_counter()
    source = open_committed(dataset, version)
    contenders = _contenders(candidates)
    today = None if config.against == BEHAVIOUR else _contenders([config.against])[0]
    config = _with_checkpoints(config, today)
    operation = Operation.of("decide", config, version=1, exclude={"against"})
    policies = [*contenders, *([today] if today else [])]
    identity = identity_of(operation, [source.parent_entry, *(each.manifest.parent_entry(each.uri) for each in policies)])
    place = Location.of(output).make_folder().child(RESULT_FILE)
    with place.parent.locked():
        if found := load_result(place, identity, DecisionResult, fingerprint=fingerprint_of):
            return found
        for each in policies:
            check_policies(config.estimate.model_copy(update={"methods": ["fqe"]}), each.policy, None, source)
        invalidate_result(place)
        result = _decided(config, source, contenders, today, place.parent, start)
        store_result(place, identity, result, fingerprints={each.uri: each.manifest.fingerprint for each in policies})
    log.info("%s", result.sentence)
    return result


def _decided(
    config: DecisionConfig,
    source: Dataset,
    contenders: Sequence[Contender],
    today: Contender | None,
    folder: Location,
    start: float,
) -> DecisionResult:
    halves = split_dataset(
        SplitConfig(held_out_fraction=config.judge_share, by=config.by, seed=config.seed),
        dataset=source.location.uri,
        version=source.manifest.version,
        output=folder.child(SIDES).uri,
    )
    selecting, judging = halves.train, halves.held_out
    recorded = config.estimate.behaviour is None and has_probabilities(open_dataset(judging.uri, judging.version))
    model = config.estimate.behaviour or model_of_behaviour(selecting, judging, folder.child(MODEL).uri, seed=config.seed)
    behaviour = load_policy(model)
    history = lineage(source.location.uri, source.manifest.version)
    acting = None if recorded else behaviour, None if today is None else today.policy
    sides = [Side.of(*each, config, history, *acting) for each in (("select", selecting), ("judge", judging))]
    examined = examine(behaviour, sides[1].dataset, recorded=recorded)

    ranked = _selected(sides[0], contenders)
    judged, first = _judged(sides[1], ranked, config)
    listed = not any(isinstance(leaf, gym.spaces.Box) for leaf in leaf_spaces(behaviour.action_space))
    refusals = [*diagnosis.about_behaviour(examined, listed=listed, recorded=recorded)]
    ruling = rule(judged, config, episodes=source.ref.episodes, refusals=refusals)
    best = ruling.first
    warnings = [
        *diagnostics.about_history(source, history),
        *diagnostics.about_parts(first.begins_late),
        *_about_sampling(contenders, config),
        *diagnosis.about_drift(source),
    ]
    return DecisionResult(
        uri=folder.uri,
        verdict=ruling.verdict,
        sentence=ruling.sentence,
        checkpoint=best.checkpoint,
        fingerprint=best.fingerprint,
        against=config.against,
        against_fingerprint=None if today is None else today.manifest.fingerprint,
        worth_testing=ruling.worth_testing,
        episodes_needed=ruling.episodes_needed,
        recorded=float(first.episodes.returns.mean()),
        candidates=ruling.candidates,
        dataset=source.ref,
        selecting=selecting,
        judging=judging,
        behaviour=None if recorded else model,
        calibration=[] if recorded else examined.calibration,
        calibration_error=None if recorded else examined.error,
        risk=config.risk,
        confidence=config.estimate.confidence,
        gamma=config.estimate.gamma,
        horizon=first.horizon,
        reasons=refusals,
        warnings=warnings,
        seconds=time.perf_counter() - start,
    )


def _with_checkpoints(config: DecisionConfig, today: Contender | None) -> DecisionConfig:
    """With the checkpoints that addresses of the registry name now."""
    changes: dict[str, object] = {} if today is None else {"against": today.uri}
    if config.estimate.behaviour is not None:
        uri, _ = find_policy(config.estimate.behaviour)
        changes["estimate"] = config.estimate.model_copy(update={"behaviour": uri})
    return config.model_copy(update=changes)


def _contenders(policies: Sequence[str]) -> list[Contender]:
    found = [find_policy(policy) for policy in policies]
    uris, manifests = [uri for uri, _ in found], [manifest for _, manifest in found]
    if len({*uris}) < len(uris):
        raise ConfigError(f"A candidate is named twice among {', '.join(policies)}: leave one.")
    names = readable_names(names_of(uris), manifests)
    return [Contender(*each, load_policy(each[0], each[2])) for each in zip(uris, names, manifests, strict=True)]


def names_of(uris: Sequence[str]) -> list[str]:
    """The parts of paths in which they differ, or the last one."""
    parts = [uri.rstrip("/").split("/") for uri in uris]
    if len(parts) == 1:
        return ["/".join(parts[0][-2:])]
    shortest = min(map(len, parts))
    begin = next((i for i in range(shortest) if len({each[i] for each in parts}) > 1), shortest - 1)
    end = next((i for i in range(shortest - begin) if len({each[-1 - i] for each in parts}) > 1), 0)
    return ["/".join(each[begin : len(each) - end]) or each[-1] for each in parts]


@dataclass(frozen=True, slots=True)
class Ranked:
    """A contender as the selecting side has it."""

    contender: Contender
    difference: Difference
    estimates: dict[str, float]
    overlap: float
    reasons: list[str]
    """Why this side could not judge it."""
    score: float = 0.0


def _selected(side: Side, contenders: Sequence[Contender]) -> list[Ranked]:
    """Contenders as this side ranks them, the best first."""
    today = [] if side.today is None else [side.today]
    *found, last = side.evidence([*(each.policy for each in contenders), *today], ["fqe", "wdr"])
    baseline = last.episodes if today else None
    recorded = _estimates(last, ["fqe"])["fqe"] if today else float(last.episodes.returns.mean())
    found = found if today else [*found, last]
    ranked = []
    for contender, evidence in zip(contenders, found, strict=True):
        difference = side.difference(evidence.episodes, baseline, beyond=side.config.margin)
        overlap = overlap_of(evidence.episodes.log_ratios)
        reasons = [*diagnosis.about_difference(difference, side.config, overlap)]
        ranked.append(Ranked(contender, difference, _estimates(evidence, ["fqe", "wdr"]), overlap, reasons))
    scores = combined([each.difference for each in ranked], [each.estimates["fqe"] - recorded for each in ranked])
    order = np.argsort(-scores, kind="stable")
    return [replace(ranked[number], score=float(scores[number])) for number in order]


def _judged(side: Side, ranked: Sequence[Ranked], config: DecisionConfig) -> tuple[list[Candidate], Evidence]:
    """All candidates, the finalists judged, and the evidence of the first."""
    finalists = sorted(ranked, key=lambda each: bool(each.reasons))[: config.finalists]
    policies = [*(each.contender.policy for each in finalists), *([] if side.today is None else [side.today])]
    found = side.evidence(policies, config.estimate.methods)
    guardrails: list[list[GuardrailFinding]] = [[] for _ in finalists]
    for guardrail in config.guardrails:
        paid = side.evidence(policies, ["wdr"], rewards=side.paid(guardrail.expression))
        baseline = None if side.today is None else paid[-1].episodes
        for findings, evidence in zip(guardrails, paid, strict=False):
            apart = side.difference(evidence.episodes, baseline, beyond=-guardrail.max_fall)
            passed = apart.p_value <= config.risk
            findings.append(GuardrailFinding(name=guardrail.name, difference=apart, max_fall=guardrail.max_fall, passed=passed))
    baseline = None if side.today is None else found[-1].episodes
    judged = []
    for each in ranked:
        about: dict[str, object] = {"reasons": each.reasons, "estimates": each.estimates}
        if each in finalists:
            number = finalists.index(each)
            difference = side.difference(found[number].episodes, baseline, beyond=config.margin)
            about = _about(side, each.contender, number, found[number], difference) | {"guardrails": guardrails[number]}
        known: dict[str, object] = {"checkpoint": each.contender.uri, "fingerprint": each.contender.manifest.fingerprint}
        known |= {
            "name": each.contender.name,
            "selected": each.difference,
            "judged": None,
            "overlap": each.overlap,
            "score": each.score,
        }
        judged.append(Candidate.model_validate(known | about))
    return judged, found[0]


def _estimates(evidence: Evidence, methods: Sequence[Method]) -> dict[str, float]:
    once = np.ones((1, len(evidence.episodes)))
    return {name: float(METHODS[name].estimate(evidence.episodes, once)[0]) for name in methods}


def _about(side: Side, contender: Contender, number: int, evidence: Evidence, difference: Difference) -> dict[str, object]:
    """What is told of a finalist."""
    config, episodes = side.config, evidence.episodes
    overlap, share = overlap_of(episodes.log_ratios), unrecorded_share(episodes)
    by = "the model of the behaviour" if side.behaviour else columns.ACTION_LOGP
    weights = np.abs(influence(episodes))
    order = np.argsort(-weights, kind="stable")[:CARRIED]
    index = episode_index(side.dataset, [columns.EPS_ID, columns.LENGTH])
    ids = index.filter(index[columns.LENGTH] > 0)[columns.EPS_ID].to_list()
    seen = evidence.seen
    assert seen is not None
    log_ratios = seen.of_steps(LOG_RATIOS)[:, number]
    ratios = np.exp(np.minimum(log_ratios, 0.0))
    return {
        "judged": difference,
        "overlap": overlap,
        "reasons": [
            *diagnosis.about_difference(difference, config, overlap),
            *diagnosis.about_learning(lineage(contender.uri), side.history, side.dataset),
            *diagnostics.about_weights(episodes, by=by),
            *diagnostics.about_horizon(config.estimate, episodes.lengths, evidence.is_open, share),
        ],
        "estimates": _estimates(evidence, config.estimate.methods),
        "differs_where": regions(seen, ratios, "it does as the behaviour in {share}", seed=config.seed),
        "unsupported_where": regions(seen, supported(log_ratios), "the log has {share} of what it does", seed=config.seed),
        "carried_by": {ids[number]: float(weights[number] / weights.sum()) for number in order if weights.sum() > 0},
    }


def _about_sampling(contenders: Sequence[Contender], config: DecisionConfig) -> list[str]:
    if not config.estimate.explore:
        return []
    return [each for one in contenders for each in diagnostics.about_sampling(one.manifest, one.policy)]
