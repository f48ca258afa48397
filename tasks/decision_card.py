"""The card of a decision."""

from __future__ import annotations

from collections.abc import Mapping

from offline_core.data.store.location import Location
from offline_core.judging.decisions.config import BEHAVIOUR, DecisionConfig
from offline_core.judging.decisions.result import Candidate, DecisionResult, Difference, GuardrailFinding, Verdict
from offline_core.judging.decisions.words import in_words
from offline_core.runtime.reporting.card import Headline, Section, Tone
from offline_core.runtime.reporting.cards import decision_card
from offline_core.runtime.units import duration_text
from tasks.artifacts import Page
from tasks.headlines import headline_of, stage_headline

MOST_ROWS = 50
"""Candidates in the table."""
MOST_DRAWN = 10
"""Candidates in a picture."""
MOST_LIGHTS = 6
TONES: Mapping[Verdict, Tone] = {"promote": "good", "refused": "warning"}
"""Neutral: the others."""
MARKS = {"holds": "🟢", "unsure": "🟡", "falls": "🔴"}
COLUMNS = [
    "Candidate",
    "Difference, judged",
    "Difference, selecting side",
    "Ranked by",
    "Chance of an improvement",
    "Effective episodes",
    "Overlap",
    "Guardrails",
    "Why not",
]


def decide(result: DecisionResult, config: DecisionConfig, *, output: str, **_: object) -> Page:
    """The verdict, the candidates beside what runs today, and what the first of them is like."""
    first, drawn = result.first, result.candidates[:MOST_DRAWN]
    judged = [each for each in result.candidates if each.judged is not None]
    found = [(each, finding) for each in judged for finding in each.guardrails]
    card = decision_card(
        headline=headline_of(result),
        rows=_rows(result, config, len(judged)),
        sections=[
            Section("In plain words", in_words(result)),
            Section("Candidates", columns=COLUMNS, rows=[_row(each) for each in result.candidates[:MOST_ROWS]]),
            Section(
                "Guardrails",
                columns=["Candidate", "Guardrail", "Holds", "Difference", "May fall by"],
                rows=[
                    [each.name, finding.name, _light(finding), told_difference(finding.difference), f"{finding.max_fall:g}"]
                    for each, finding in found
                ],
            ),
            Section("Worth an A/B test", result.worth_testing),
            Section("Why this log cannot be judged", result.reasons),
            Section("Warnings", result.warnings),
            Section(f"Where {first.name} acts otherwise than what acted", first.differs_where),
            Section(f"Where the log has little of what {first.name} does", first.unsupported_where),
            Section(
                f"Episodes that carry the estimate of {first.name}",
                columns=["Episode", "Share of the evidence"],
                rows=[[name, f"{100 * share:.1f} %"] for name, share in first.carried_by.items()],
            ),
            Section(
                f"Value of {first.name} by each method (wdr decides)",
                columns=["Method", "Discounted return"],
                rows=[[name, value] for name, value in first.estimates.items()],
            ),
        ],
        differences={each.name: (_bounds(each.judged), _bounds(each.selected)) for each in drawn},
        margin=config.margin,
        overlaps={each.name: each.overlap for each in drawn if each.judged is not None},
        least_overlap=config.min_overlap,
        lights={
            f"{each.name}, {finding.name}": (
                word_of(finding),
                f"{told_difference(finding.difference)}, may fall by {finding.max_fall:g}",
            )
            for each, finding in found[:MOST_LIGHTS]
        },
        calibration=result.calibration,
    )
    return Page(card, (result.checkpoint, None), [Location.of(output).child("card")])


@stage_headline.register
def _(result: DecisionResult) -> Headline:
    return Headline(result.verdict, result.sentence, TONES.get(result.verdict, "neutral"))


def word_of(finding: GuardrailFinding) -> str:
    """holds: shown. unsure: not shown, though the estimate is that it does. falls: the estimate is that it does not."""
    if finding.passed:
        return "holds"
    return "unsure" if finding.difference.value >= -finding.max_fall else "falls"


def _rows(result: DecisionResult, config: DecisionConfig, judged: int) -> dict[str, object]:
    calibration = "" if result.calibration_error is None else f"; off by {100 * result.calibration_error:.1f} % on average"
    return {
        "Against": "what the log recorded" if result.against == BEHAVIOUR else result.against,
        "First": result.checkpoint,
        "Dataset": result.dataset,
        "Candidates": f"{len(result.candidates):,}, ranked on {result.selecting.episodes:,} episodes",
        "Judged": f"{judged:,} of them, on {result.judging.episodes:,} other episodes",
        "Recorded": f"{result.recorded:.4g} on the judging episodes, discounted by {result.gamma:g}",
        "Horizon": "until it terminates" if result.horizon is None else f"{result.horizon:,} steps",
        "Risk": f"{100 * result.risk:g} % over all that are judged, of a difference of {config.margin:g} or less",
        "Intervals": f"{100 * result.confidence:g} %, of each candidate alone",
        "What acted": f"{result.behaviour}{calibration}" if result.behaviour else "the recorded action_logp",
        **({} if result.episodes_needed is None else {"Episodes needed": f"about {result.episodes_needed:,} more"}),
        "Time": duration_text(result.seconds),
    }


def _row(each: Candidate) -> list[str]:
    judged = each.judged
    return [
        each.name,
        "no finalist" if judged is None else told_difference(judged),
        "–" if each.selected is None else told_difference(each.selected),
        f"{each.score:+.4g}",
        "–" if judged is None else f"{100 * judged.chance:.1f} %",
        "–" if judged is None else f"{judged.effective_episodes:,.1f}",
        "–" if judged is None else f"{100 * each.overlap:.0f} %",
        ", ".join(f"{_light(finding)}: {finding.name}" for finding in each.guardrails) or "none set",
        "; ".join(each.reasons) or "–",
    ]


def _light(finding: GuardrailFinding) -> str:
    word = word_of(finding)
    return f"{MARKS[word]} {word}"


def told_difference(found: Difference) -> str:
    """With its interval."""
    return f"{found.value:+.4g} ({found.low:+.4g} to {found.high:+.4g})"


def _bounds(found: Difference | None) -> tuple[float, float, float] | None:
    return None if found is None else (found.value, found.low, found.high)
