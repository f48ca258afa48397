"""What each side of a log says of the candidates: one ranks them, the other judges the first of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from offline_core.data.episodes import EpisodeBatch, columns
from offline_core.judging.decisions import diagnosis
from offline_core.judging.decisions.comparison import combined, without_resamples
from offline_core.judging.decisions.explain import explained
from offline_core.judging.decisions.explanation import ExplainedStep
from offline_core.judging.decisions.groups import effects, with_shown
from offline_core.judging.decisions.overlap import overlap_of, regions, supported
from offline_core.judging.decisions.result import Candidate, Difference, GuardrailFinding
from offline_core.judging.decisions.sides import Side, paid
from offline_core.judging.estimation import diagnostics
from offline_core.judging.estimation.config import DECIDING, Method
from offline_core.judging.estimation.contenders import Contender
from offline_core.judging.estimation.estimators import METHODS, size_by_time, unrecorded_share
from offline_core.judging.estimation.evidence import Evidence
from offline_core.judging.estimation.influence import influence
from offline_core.judging.estimation.logged import LOG_BEHAVIOUR, LOG_RATIOS, inputs_of
from offline_core.judging.estimation.propensities import about_recorded
from offline_core.judging.estimation.result import NOTED_UNRECORDED
from offline_core.judging.estimation.trajectories import Trajectories

JUDGES: tuple[Method, ...] = ("fqe", DECIDING)
"""What every decision goes by; other methods are shown."""
CARRIED, DIFFERING = 10, 5
NOTICED_OF_MODEL = 0.1
"""How far a mean ratio may be from 1 where a model says how probable actions were: what it misses is not in all weights alike,
but wdr takes them by their sum."""


@dataclass(frozen=True, slots=True)
class Judged:
    """All candidates, the finalists judged."""

    candidates: list[Candidate]
    recorded: float
    """Mean discounted return of the episodes that judge."""
    begins_late: np.ndarray
    """(E,) bool, see `Evidence`."""
    horizon: int | None
    """See `Evidence`."""
    refusals: list[str]
    """Why nothing on this log can be held against what runs today."""


class Held(NamedTuple):
    """What one side says of a candidate beside what runs today."""

    candidate: Candidate
    """Without its score."""
    baseline: float
    """The mean discounted return of the log, see `Trajectories.continued`, or what fqe says of what runs today."""
    recorded: float
    """The mean discounted return of the log, up to where the recordings end."""


def held_against(side: Side, contenders: Sequence[Contender]) -> list[Held]:
    """What this side says of each contender beside what runs today."""
    evidence, today = _with_today(side, contenders)
    baseline = None if today is None else METHODS["fqe"].value(today)
    held = []
    for contender in contenders:
        episodes = evidence.episodes.pop(0)  # what is derived from it is gone when the next one comes
        difference = side.difference(episodes, today, beyond=side.config.margin)
        overlap = overlap_of(episodes.log_ratios, episodes.lengths)
        reasons = [*contender.reasons, *diagnosis.about_difference(difference, side.config, overlap)]
        estimates = _estimates(episodes, JUDGES)
        candidate = candidate_of(contender, selected=difference, estimates=estimates, overlap=overlap, reasons=reasons)
        beside = float(episodes.continued.mean()) if baseline is None else baseline
        held.append(Held(candidate, beside, float(episodes.returns.mean())))
    return held


def scored(held: Sequence[Held]) -> list[Candidate]:
    """The candidates with their scores, which depend on all of them together; the best first."""
    differences = [candidate.selected for candidate, *_ in held if candidate.selected is not None]
    scores = combined(differences, [candidate.estimates["fqe"] - baseline for candidate, baseline, _ in held])
    order = np.argsort(-scores, kind="stable").tolist()
    return [held[place].candidate.model_copy(update={"score": float(scores[place])}) for place in order]


def unjudged(side: Side, contender: Contender) -> Judged:
    """What this side says of its own episodes, where no candidate is to be judged.

    Arguments:
        contender: one with the spaces of the log; it is not asked.
    """
    evidence = side.evidence([contender.policy], [])
    return Judged([], float(evidence.episodes[0].returns.mean()), evidence.begins_late, evidence.horizon, [])


def judge(
    side: Side,
    contenders: Sequence[Contender],
    ranked: Sequence[Candidate],
    groups: Mapping[str, np.ndarray],
    parts: Mapping[str, np.ndarray],
) -> Judged:
    """Judge the first of those that the other side could judge, then of the rest.

    Arguments:
        ranked: the contenders as the other side ranks them.
        groups: (E,) bool of this side's episodes by name; the risk is of all groups together.
        parts: likewise, of a log that drifts; they are told, and not tested.
    """
    config, by_uri = side.config, {contender.uri: contender for contender in contenders}
    chosen = sorted(ranked, key=lambda candidate: bool(candidate.reasons))[: config.finalists]
    finalists = [by_uri[candidate.checkpoint] for candidate in chosen]
    evidence, today = _with_today(side, finalists, *(name for name in config.estimate.methods if name not in JUDGES))
    guardrails = _guardrails(side, finalists)
    returns = evidence.episodes[0].returns
    refusals = [
        *diagnosis.about_returns(returns),
        *diagnosis.about_today(config, [] if today is None else _about_today(side, today)),
    ]
    if side.behaviour is None and evidence.seen is not None:
        refusals += about_recorded(evidence.seen, finalists[0].policy)
    judged = {}
    for number, contender in enumerate(finalists):
        episodes = evidence.episodes.pop(0)
        difference = side.difference(episodes, today, beyond=config.margin, with_tail=True)
        in_some = partial(
            effects,
            candidate=episodes,
            today=today,
            compare=partial(side.difference, beyond=0.0),
            least=config.estimate.min_effective_episodes,
        )
        judged[contender.uri] = _about(side, contender, number, episodes, evidence, difference) | {
            "guardrails": guardrails[number],
            "groups": with_shown(in_some(groups), config.risk),
            "parts": in_some(parts),
        }
    candidates = [Candidate.model_validate(dict(candidate) | judged.get(candidate.checkpoint, {})) for candidate in ranked]
    return Judged(candidates, float(returns.mean()), evidence.begins_late, evidence.horizon, refusals)


def candidate_of(contender: Contender, **about: object) -> Candidate:
    """The candidate of a result: a contender, and what is told about it."""
    identity = {"checkpoint": contender.uri, "fingerprint": contender.fingerprint, "name": contender.name}
    clone = None if contender.clone is None else contender.clone.checkpoint
    return Candidate.model_validate(identity | {"clone": clone} | about)


def _with_today(
    side: Side, contenders: Sequence[Contender], *more: Method, rewards: np.ndarray | None = None
) -> tuple[Evidence, Trajectories | None]:
    """What this side says of contenders, and of what runs today: None if that is what the log recorded."""
    policies = [contender.policy for contender in contenders] + ([] if side.today is None else [side.today])
    evidence = side.evidence(policies, [*JUDGES, *more], rewards=rewards)
    return evidence, None if side.today is None else evidence.episodes.pop()


def _guardrails(side: Side, contenders: Sequence[Contender]) -> list[list[GuardrailFinding]]:
    """What this side says of each guardrail, for each contender."""
    findings_by_contender: list[list[GuardrailFinding]] = [[] for _ in contenders]
    for guardrail in side.config.guardrails:
        rewards, recorded, unrecorded = paid(side.dataset, guardrail), 0.0, 0.0
        size = side.dataset.ref.episodes
        if not rewards.any():  # no step of the log touches it
            same = without_resamples(0.0, 0.0, effective_episodes=size, carrying_episodes=size, largest_share=1 / size)
            differences = [same] * len(contenders)
        else:
            evidence, today = _with_today(side, contenders, rewards=rewards)
            recorded = float(evidence.episodes[0].returns.mean())
            beyond = -guardrail.max_fall
            unrecorded = max(map(unrecorded_share, evidence.episodes[: len(contenders)]))
            differences = [side.difference(evidence.episodes.pop(0), today, beyond=beyond) for _ in contenders]
        if unrecorded > NOTED_UNRECORDED:  # of what follows the recordings no fall can be excluded
            differences = [difference.model_copy(update={"p_value": 1.0}) for difference in differences]
        for findings, difference in zip(findings_by_contender, differences, strict=True):
            passed = difference.p_value <= side.config.risk / side.config.finalists
            terms = {"name": guardrail.name, "max_fall": guardrail.max_fall, "unit": guardrail.unit, "recorded": recorded}
            terms["unrecorded_share"] = unrecorded
            findings.append(GuardrailFinding.model_validate({**terms, "difference": difference, "passed": passed}))
    return findings_by_contender


def _estimates(episodes: Trajectories, methods: Sequence[Method]) -> dict[str, float]:
    return {name: METHODS[name].value(episodes) for name in methods}


def _about(
    side: Side, contender: Contender, number: int, episodes: Trajectories, evidence: Evidence, difference: Difference
) -> dict[str, object]:
    """What is told of a finalist.

    Arguments:
        number: of its distribution in what was read.
    """
    config, seen = side.config, evidence.seen
    assert seen is not None
    overlap, share = overlap_of(episodes.log_ratios, episodes.lengths), unrecorded_share(episodes)
    weights = np.abs(influence(episodes))
    order = np.argsort(-weights, kind="stable")[:CARRIED]
    index = side.dataset.index([columns.EPS_ID, columns.LENGTH])
    ids = index.filter(index[columns.LENGTH] > 0)[columns.EPS_ID]
    log_ratios = seen.of_steps(LOG_RATIOS)[:, number]
    told_regions = partial(regions, seed=config.seed, made_of=side.dataset.manifest.input_columns)
    ratios = np.exp(np.minimum(log_ratios, 0.0))
    return {
        "judged": difference,
        "overlap": overlap,
        "reasons": [
            *contender.reasons,
            *_about_weights(side, episodes),
            *diagnosis.about_difference(difference, config, overlap),
            *diagnostics.about_horizon(config.estimate, episodes.lengths, evidence.is_open, share),
        ],
        "estimates": _estimates(episodes, [*JUDGES, *(name for name in config.estimate.methods if name not in JUDGES)]),
        "differs_where": told_regions(seen, ratios, "it does as the behaviour in {share}"),
        "unsupported_where": told_regions(seen, supported(log_ratios, seen.lengths), "the log has {share} of what it does"),
        "differs_at": _differing(side, contender, number, seen),
        "carried_by": {ids[index]: float(weights[index] / weights.sum()) for index in order.tolist() if weights.sum() > 0},
    }


def _differing(side: Side, contender: Contender, number: int, seen: EpisodeBatch) -> list[ExplainedStep]:
    """The few steps, each of another episode, at which what was done is least of what a finalist would do.

    Of several that it would never do, those come first that the behaviour did most surely.
    """
    steps = np.flatnonzero(seen.is_step)
    lots = np.random.default_rng(side.config.seed).permutation(len(steps))
    order = steps[np.lexsort((lots, -seen[LOG_BEHAVIOUR][steps], seen[LOG_RATIOS][steps, number]))]
    _, first = np.unique(seen.episode[order], return_index=True)
    rows = order[np.sort(first)[:DIFFERING]]
    named, inputs = {contender.name: contender.policy}, {contender.name: torch.from_numpy(seen[inputs_of(number)])}
    made_of, explore = side.dataset.manifest.input_columns, side.config.estimate.explore
    return explained(seen, rows, named, inputs, made_of, explore=explore)[0]


def _about_today(side: Side, episodes: Trajectories) -> list[str]:
    """Why this log cannot tell what runs today comes to."""
    overlap, size = overlap_of(episodes.log_ratios, episodes.lengths), size_by_time(episodes).episodes
    return [*diagnosis.about_support(size, side.config, overlap), *_about_weights(side, episodes)]


def _about_weights(side: Side, episodes: Trajectories) -> Iterator[str]:
    """What `about_weights` says; a model has to be right to a tenth only."""
    if side.behaviour is None:
        return diagnostics.about_weights(episodes, by=columns.ACTION_LOGP)
    return diagnostics.about_weights(episodes, by="the model of the behaviour", noticed=NOTICED_OF_MODEL)
