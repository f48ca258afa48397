"""The verdict: one of five words, and the sentence that says why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from offline_core.judging.decisions.comparison import holm
from offline_core.judging.decisions.config import BEHAVIOUR, DecisionConfig
from offline_core.judging.decisions.result import Candidate, Difference, Verdict
from offline_core.judging.estimation.result import return_name
from offline_core.runtime.units import count_text

PROMISING = 0.2
"""P-value below which an A/B test is worth it."""
MOST_COUNTED = 1e6
"""Most episodes that are named as needed, as a multiple of those of the log; a larger number says nothing."""
MOST_GROUPS = 3
"""Most groups that the sentence names."""
MOST_TIMES = 20
"""How many times the log's episodes may be asked for."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """What follows from the candidates."""

    verdict: Verdict
    sentence: str
    first: Candidate
    """The candidate that the sentence is about."""
    candidates: list[Candidate]
    """All candidates, the best first."""
    worth_testing: list[str]
    episodes_needed: int | None


def rule(
    candidates: Sequence[Candidate],
    config: DecisionConfig,
    *,
    episodes: int,
    refusals: Sequence[str],
    against_clone: bool = False,
) -> Ruling:
    """Decide between candidates that were judged.

    How far a clone is from what it stands for is in no interval, so what a clone is on either side of is worth a test at most.

    Arguments:
        episodes: of the log.
        refusals: why the log cannot be judged at all.
        against_clone: a clone stands for what runs today.
    """
    ruling = _ruled(candidates, config, episodes, refusals, against_clone)
    worse = [finding for finding in ruling.first.groups if finding.shown == "worse"]
    if ruling.verdict == "refused" or not worse:
        return ruling
    told = ", ".join(f"{finding.group} ({finding.difference})" for finding in worse[:MOST_GROUPS])
    more = f" and in {len(worse) - MOST_GROUPS:,} more groups" if len(worse) > MOST_GROUPS else ""
    sentence = f"{ruling.sentence} {ruling.first.name} is shown to be worse where {told}{more}."
    return replace(ruling, sentence=sentence)


def _ruled(
    candidates: Sequence[Candidate],
    config: DecisionConfig,
    episodes: int,
    refusals: Sequence[str],
    against_clone: bool,
) -> Ruling:
    of_what = return_name(config.estimate.gamma)
    today = "what the log recorded" if config.against == BEHAVIOUR else f"{config.against}, which runs today"
    judged = [candidate for candidate in candidates if candidate.judged is not None and not candidate.reasons]
    shown = {
        candidate.checkpoint: is_shown and candidate.clone is None and not against_clone
        for candidate, is_shown in zip(judged, holm([p_of(candidate) for candidate in judged], config.risk), strict=True)
    }
    candidates = [
        _all_held(candidate, config.margin) if shown.get(candidate.checkpoint) else candidate for candidate in candidates
    ]
    judged = [candidate for candidate in candidates if candidate.checkpoint in shown]
    ranked = sorted(candidates, key=lambda candidate: -math.inf if candidate.score is None else candidate.score, reverse=True)
    if refusals or not judged:
        why = " ".join(refusals) or _reason(ranked)
        return Ruling("refused", f"This log cannot tell. {why}", ranked[0], ranked, [], None)
    first = min(judged, key=lambda candidate: (not shown[candidate.checkpoint], -_rank(candidate)))
    difference = _judged(first)
    if shown[first.checkpoint]:
        sentence = (
            f"Promote {first.name}: its {of_what} is {difference.value:.4g} above that of {today} (at least "
            f"{difference.at_least:.4g}, at a risk of {100 * config.risk:g} % over all that are judged)."
        )
        return Ruling("promote", f"{sentence}{_held_back_better(first, judged, config)}", first, ranked, [], None)
    by_value = sorted(judged, key=lambda candidate: -_rank(candidate))
    testing = [candidate for candidate in by_value if _judged(candidate).value > config.margin and p_of(candidate) <= PROMISING]
    if testing:
        first = testing[0]
        names = ", ".join(candidate.name for candidate in testing)
        beyond = f" by more than {config.margin:g}" if config.margin else ""
        sides = (first.name, first.clone is not None), (today, against_clone)
        if first.clone is not None or against_clone:
            own, other = (f"the clone of {name}" if is_clone else name for name, is_clone in sides)
            unknown = f"how far a clone is from what it stands for is not known{_held_back(first)}"
            sure = _sure(_judged(first).p_value)
            why, needed = f"the log is {sure} that {own} is better than {other}, and {unknown}", None
        else:
            why = _not_shown(first, f"{first.name} is better than {today}{beyond}", config.risk, len(judged))
            needed = _needed(first, config, episodes)
        sentence = f"Test {names} beside what runs today: {why}."
        return Ruling("test", sentence, first, ranked, [candidate.checkpoint for candidate in testing], needed)
    needed = _needed(first, config, episodes)
    if needed is not None and needed <= MOST_TIMES * episodes:
        missing = f"{episodes:,} do not show it{_held_back(first)}"
        sentence = f"Collect about {needed:,} more episodes: {first.name} may be better than {today}, and {missing}."
        return Ruling("collect", sentence, first, ranked, [], needed)
    likely = [candidate for candidate in by_value if _judged(candidate).p_value <= PROMISING]
    if likely:  # and no test is worth it, for a guardrail
        first = likely[0]
        word = "better" if _judged(first).p_value <= config.risk else "likely better"
        sentence = f"Keep {today}: {first.name} is {word} by {_judged(first).value:.4g}{_held_back(first)}."
    else:
        best = f"{first.name}, by {difference.value:.4g}"
        sentence = f"Keep {today}: no candidate is shown or likely to be better (the best, {best})."
    return Ruling("keep", f"{sentence}{_about_others(ranked)}", first, ranked, [], None)


def p_of(candidate: Candidate) -> float:
    """P-value of an improvement and all guardrails together: the largest, since all of them have to be shown.

    This is an intersection-union test (Berger 1982): what is tested is that one of them is not so, and it is rejected only
    where each alone is, so its risk is that of one test, however many guardrails there are.
    """
    return max(_judged(candidate).p_value, *(finding.difference.p_value for finding in candidate.guardrails), 0.0)


def _judged(candidate: Candidate) -> Difference:
    assert candidate.judged is not None
    return candidate.judged


def _rank(candidate: Candidate) -> float:
    """A cautious value to rank a candidate by, as few episodes make large values; of both sides where it was judged."""
    differences = [difference for difference in (candidate.judged, candidate.selected) if difference is not None]
    if not differences:
        return -math.inf
    weights = [1 / max(difference.standard_error, 1e-9) ** 2 for difference in differences]
    value = sum(weight * difference.value for weight, difference in zip(weights, differences, strict=True)) / sum(weights)
    return float(value - sum(weights) ** -0.5)


def _reason(ranked: Sequence[Candidate]) -> str:
    first, *more = ranked[0].reasons
    others = f" The card's table of candidates has {count_text(len(more), 'more reason')}." if more else ""
    return f"Of {ranked[0].name}: {first.rstrip('.')}.{others}"


def _about_others(ranked: Sequence[Candidate]) -> str:
    """Words for the candidates that could not be judged; empty if there are none."""
    others = [candidate for candidate in ranked if candidate.reasons]
    if not others:
        return ""
    return f" {count_text(len(others), 'candidate')} could not be judged. {_reason(others)}"


def _all_held(candidate: Candidate, margin: float) -> Candidate:
    """A candidate that is shown to be better, with all its guardrails taken as shown.

    Holm's later steps may show what is not shown at the first one's share of the risk. The candidate is above the margin then,
    at the risk over all, though its own bound at the first one's share is below (Strassburger and Bretz 2008).
    """
    held = [finding.model_copy(update={"passed": True}) for finding in candidate.guardrails]
    judged = _judged(candidate)
    judged = judged.model_copy(update={"at_least": max(judged.at_least, margin)})
    return candidate.model_copy(update={"guardrails": held, "judged": judged})


def _held_back_better(first: Candidate, judged: Sequence[Candidate], config: DecisionConfig) -> str:
    """Words for a candidate that is likely better than the promoted one, but for its guardrails."""
    for other in judged:
        difference = _judged(other)
        if difference.value > _judged(first).value and difference.p_value <= config.risk and _held_back(other):
            return f" {other.name} may be better still, by {difference.value:.4g}{_held_back(other)}."
    return ""


def _held_back(candidate: Candidate) -> str:
    """Words for the guardrails that are not shown to hold; empty if all are."""
    open_ones = [finding.name for finding in candidate.guardrails if not finding.passed]
    return f", and {', '.join(open_ones)} may fall by more than allowed" if open_ones else ""


def _not_shown(first: Candidate, is_better: str, risk: float, judged: int) -> str:
    """Words for how sure the log is of an improvement, and of each guardrail that is not shown to hold.

    Arguments:
        risk: that of the whole decision, of which each candidate that was judged has its share.
    """
    open_ones = [finding for finding in first.guardrails if not finding.passed]
    claims = [(_judged(first).p_value, is_better)]
    claims += [(finding.difference.p_value, f"{finding.name} falls by no more than allowed") for finding in open_ones]
    level = f"{100 * (1 - risk / judged):.3g} %"
    wanted = f", not {level}" if judged == 1 else f", not the {level} that the first of {judged} candidates needs"
    told = [f"{_sure(p_value)} that {claim}{wanted if p_value > risk / judged else ''}" for p_value, claim in claims]
    return f"the log is {', and '.join(told)}"


def _sure(p_value: float) -> str:
    """In tenths of a percent, rounded down: what is not shown is not said to be."""
    return f"{math.floor(1000 * (1 - p_value)) / 10:g} % sure"


def _needed(candidate: Candidate, config: DecisionConfig, episodes: int) -> int | None:
    """How many more episodes would let the bounds of the difference and of each guardrail clear; None if it is unknown.

    What lies between an estimate and its bound shrinks with the root of the number of episodes.
    """
    margins = [
        (_judged(candidate), config.margin),
        *((finding.difference, -finding.max_fall) for finding in candidate.guardrails),
    ]
    if any(difference.value <= beyond for difference, beyond in margins):
        return None
    times = max(((difference.value - difference.at_least) / (difference.value - beyond)) ** 2 for difference, beyond in margins)
    return math.ceil(episodes * (times - 1)) if 1 < times < MOST_COUNTED else None
