"""A decision in plain sentences, for people who run the process and not the tool."""

from __future__ import annotations

from collections.abc import Iterator

from offline_core.judging.decisions.config import BEHAVIOUR
from offline_core.judging.decisions.result import Candidate, DecisionResult, Difference, Verdict

THIN, FAIR = 50.0, 200.0
"""Effective episodes below which the evidence is called thin, and fair."""
NEARLY = 0.7
"""Share of the first one's gain that is nearly as good."""
NEXT: dict[Verdict, str] = {
    "promote": "Next: let it run on a part first, watch it, and go on recording with exploration.",
    "test": "Next: run it beside what runs today on a part of the traffic, and compare.",
    "collect": "Next: record more episodes as before, and decide again.",
    "keep": "Next: nothing changes; train other candidates, or record other data.",
    "refused": "Next: nothing changes; mend what is said above, and decide again.",
}


def in_words(result: DecisionResult) -> list[str]:
    """The gain, how strong the evidence is, guardrails, the next best, and what to do."""
    return [*_sentences(result), NEXT[result.verdict]]


def _sentences(result: DecisionResult) -> Iterator[str]:
    first = result.first
    if (judged := first.judged) is None or result.verdict == "refused":
        return
    if result.against == BEHAVIOUR and result.recorded:
        share, least = (100 * value / abs(result.recorded) for value in (judged.value, judged.at_least))
        gain = f"{first.name} is {share:+.0f} % from that, {least:+.0f} % at least"
        yield f"The log returned {result.recorded:.4g} an episode; {gain}."
    counting = min(judged.effective_episodes, judged.carrying_episodes)
    word = "thin" if counting < THIN else "fair" if counting < FAIR else "strong"
    why = "as the others did little of what it does"
    if counting < judged.effective_episodes:
        why = "as a few episodes carry most of the difference"
    yield (
        f"The evidence for {first.name} is {word}: of {result.judging.episodes:,} judging episodes about "
        f"{counting:,.0f} count, {why}."
    )
    yield _guardrails(first)
    for each in result.candidates:
        other = None if each is first or each.reasons else each.judged
        if other is not None and _is_better_backed(other, judged):
            yield f"{each.name} gains {other.value:.3g} on stronger evidence (about {other.effective_episodes:,.0f})."
            return


def _guardrails(first: Candidate) -> str:
    if not first.guardrails:
        return "No guardrail was set: nothing here says whether another return falls (guardrails)."
    broken = [each.name for each in first.guardrails if not each.passed]
    if broken:
        return f"Not shown to hold: {', '.join(broken)}."
    return f"All guardrails are shown to hold: {', '.join(each.name for each in first.guardrails)}."


def _is_better_backed(other: Difference, first: Difference) -> bool:
    return other.effective_episodes > first.effective_episodes and other.value >= NEARLY * first.value > 0
