"""The result of a decision: the verdict first, then the numbers behind it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from offline_core.data.datasets.dataset import DatasetRef
from offline_core.judging.decisions.config import BEHAVIOUR
from offline_core.judging.decisions.explanation import ExplainedStep, likelihood_of, steps_section
from offline_core.judging.estimation.config import method_in_words
from offline_core.judging.estimation.result import horizon_text, return_head, return_name, told_confidence, told_discount
from offline_core.policies.kind import as_judged, kind_of
from offline_core.runtime.reporting import figures
from offline_core.runtime.reporting.card import Card, Mark, Section, command
from offline_core.runtime.reporting.card import Verdict as CardVerdict
from offline_core.runtime.result import Part, PolicyResult
from offline_core.runtime.signing import signature_of, wrong_with
from offline_core.runtime.units import count_text, duration_text, list_text, number_text

if TYPE_CHECKING:
    import polars as pl

SELECT, JUDGE = "select", "judge"
"""The sides of a log, from whose names their random numbers are derived."""
MODEL = "behaviour"
"""Folder inside the decision's: the model of what acted."""

Verdict = Literal["promote", "test", "collect", "keep", "refused"]
"""promote: replace what runs today. test: an A/B test is worth it. collect: more episodes would tell. keep: no candidate is
better. refused: this log cannot tell."""
THIN, FAIR = 50.0, 200.0
"""Effective episodes below which an interval may be too narrow, and below which it is to be taken with care. How sure a
difference is, the interval says and not they."""
NEARLY = 0.7
"""Share of the first one's gain that is nearly as good."""
NEXT: Mapping[Verdict, str] = {
    "promote": "Let it run on a part first, watch it, and go on recording with exploration.",
    "test": "Run it beside what runs today on a part of the traffic, and compare.",
    "collect": "Record more episodes as before, and decide again.",
    "keep": "Nothing changes; train other candidates, or record other data.",
    "refused": "Nothing changes; mend what is said above, and decide again.",
}
UNBOUND = "Decide again with registry=runs/registry/policy, or another name there: it promotes only what it was made for."
"""What comes next after a decision for no registry whose verdict is promote."""
ADOPT = (
    "Let it act where actions are chosen today, on a part first. It is no checkpoint, so no registry can name it: to promote "
    "a policy, train one on a log that it has recorded, and decide on that."
)
"""What comes next where a rule, a function, a file or a column is shown to be better."""
OR_CHECKPOINT = " {other} is a checkpoint, and is shown to be better, too: decide again without {first} to promote it."
"""What may come next where a checkpoint is shown to be better beside what is none."""
OR_CLONE = " Or decide again with {clone} as the candidate: that clone is a policy of its own, which can be promoted."
"""What may come next where the behaviour of a dataset is worth a test."""
COLORS: Mapping[Verdict, CardVerdict] = {"promote": "good", "refused": "fair"}
"""Colors of the card by verdict; those of all other verdicts are grey."""
HOLDS: Mapping[str, CardVerdict] = {"holds": "good", "unsure": "fair", "falls": "bad"}
SHOWN: Mapping[str, CardVerdict] = {"better": "good", "not shown": "grey", "worse": "bad", "too small": "grey"}
MOST_ROWS, MOST_REFUSED, MOST_DRAWN, MOST_LIGHTS, MOST_MARKS = 50, 3, 10, 6, 6
"""Candidates in the table of a card, in that of a log that cannot tell, and in a picture; guardrails in one."""
COLUMNS = (
    "Candidate",
    "Difference, judged",
    "Difference, selecting side",
    "Ranked by",
    "Chance of an improvement",
    "Effective episodes",
    "Overlap",
    "Guardrails",
    "Why not",
)


class Difference(Part):
    """A candidate's mean discounted return minus that of what runs today, on the same episodes."""

    value: float
    low: float = Field(description="Lower end of the interval of `confidence`, for this candidate alone.")
    high: float = Field(description="Upper end.")
    standard_error: float
    at_least: float = Field(
        description="One-sided lower bound at this candidate's share of the risk; of one that is shown, the margin at least."
    )
    p_value: float = Field(description="One-sided, of a difference no larger than the margin.")
    p_worse: float = Field(1.0, description="One-sided, of a difference no smaller than the margin.")
    effective_episodes: float = Field(description="Episodes that are left by their weights (Kish).")
    carrying_episodes: float = Field(description="Episodes that carry the difference: the effective number of influences.")
    largest_share: float = Field(description="Of one episode, in the squared weights or in the influences: the larger one.")

    tail: tuple[float, float] | None = Field(
        None,
        description="Shape of a Pareto distribution of the largest influences, and its standard error; None: they are few, or "
        "not continuous, or nothing depends on it.",
    )

    @property
    def chance(self) -> float:
        """How sure the log is of an improvement."""
        return 1 - self.p_value

    def __str__(self) -> str:
        return f"{number_text(self.value, sign='+')} ({number_text(self.low, sign='+')} to {number_text(self.high, sign='+')})"


class GuardrailFinding(Part):
    """What is said of one guardrail for one candidate."""

    name: str
    difference: Difference = Field(description="p_value: of a fall by more than max_fall.")
    max_fall: float
    passed: bool = Field(description="Shown not to fall by more, at this candidate's share of the risk.")
    unit: str = Field("", description="What its numbers are.")
    recorded: float | None = Field(None, description="Mean discounted return of it in the judging episodes, as recorded.")
    unrecorded_share: float = Field(0.0, description="Share of it that was not recorded, see `EstimateResult`.")

    @property
    def mark(self) -> Mark:
        """holds: shown. unsure: not shown, though the estimate is that it does. falls: the estimate is that it does not."""
        word = "holds" if self.passed else "unsure" if self.difference.value >= -self.max_fall else "falls"
        return Mark(word, HOLDS[word])

    def __str__(self) -> str:
        change, allowed = self.difference, f"a fall of {self.told(self.max_fall)} is allowed"
        if self.mark.word == "falls":
            return f"{self.name} falls: it changes by {self.told(change.value)}, and {allowed}."
        word = "is shown to hold" if self.passed else "is not shown to hold"
        value, worst = self.told(change.value, "+"), self.told(change.at_least, "+")
        told = f"{self.name} {word}: it changes by {value}, by {worst} at the worst, and {allowed}."
        return f"{told} {100 * self.unrecorded_share:.0f} % of it was not recorded." if self.unrecorded_share > 0 else told

    def told(self, value: float, sign: str = "") -> str:
        """A number in the unit of the guardrail."""
        return f"{number_text(value, sign=sign)} {self.unit}".rstrip()


class GroupFinding(Part):
    """What is said of one candidate in some of the judging episodes."""

    group: str = Field(description="Such as zone = north, or last third.")
    episodes: int
    difference: Difference | None = Field(description="None: too few episodes count to tell.")
    shown: Literal["better", "worse"] | None = Field(
        None, description="Within the risk, over all groups (Holm); None: neither."
    )

    @property
    def mark(self) -> Mark:
        """better, worse, not shown, or too small."""
        word = "too small" if self.difference is None else self.shown or "not shown"
        return Mark(word, SHOWN[word])

    def __str__(self) -> str:
        return f"{self.group}: {'too few episodes count to tell' if self.difference is None else self.difference}"


class LogPart(Part):
    """The beginning or the end of a log that drifts."""

    name: str
    episodes: int
    mean_return: float = Field(description="Of its episodes, without a discount.")
    actions: dict[str, float] = Field(
        {}, description="Share of each action of a list, or mean of each number of a Box, in the steps nearest to that end."
    )


class Candidate(Part):
    """One policy, and what the log says of it."""

    checkpoint: str = Field(description="Its URI, or what else names it: rule:…, function:…, column:…, behaviour:…")
    fingerprint: str
    clone: str | None = Field(None, description="Checkpoint that stands for it, if it is the behaviour of a dataset.")
    name: str = Field(description="Short, and different for each candidate of a decision.")
    selected: Difference | None = Field(None, description="On the side that selects; None: it was not estimated there.")
    judged: Difference | None = Field(None, description="On the side that judges; None: it is no finalist.")
    score: float | None = Field(
        None, description="What it is ranked by: the difference on the selecting side, by wdr and by its Q function."
    )
    overlap: float | None = Field(None, description="Share of its actions that the behaviour would plausibly take.")
    guardrails: list[GuardrailFinding] = Field([])
    groups: list[GroupFinding] = Field([], description="On the judging side, by the columns of group.")
    parts: list[GroupFinding] = Field([], description="In the first and last third of a log that drifts; nothing is tested.")
    estimates: dict[str, float] = Field(
        {}, description="Of its value on the judging side, by method; shown, and not decided by."
    )
    reasons: list[str] = Field([], description="Why it cannot be judged, or is not promoted.")
    differs_where: list[str] = Field([], description="Where it acts otherwise than the behaviour, in words.")
    unsupported_where: list[str] = Field([], description="Where the log has little of what it does, in words.")
    carried_by: dict[str, float] = Field(
        {}, description="Share of the evidence by id, of the ten episodes that carry the most."
    )
    differs_at: list[ExplainedStep] = Field(
        [], description="The steps, of different episodes, at which what was done is least of what it would do."
    )


class DecisionResult(PolicyResult):
    """Which of the candidates may replace what runs today."""

    uri: str = Field(description="Folder of the decision.")
    verdict: Verdict
    sentence: str = Field(description="The verdict in one sentence.")
    checkpoint: str = Field(description="The policy that is promoted, or ranked first.")
    fingerprint: str = Field(description="Of that policy.")
    against: str
    against_fingerprint: str | None = Field(None, description="Of that checkpoint; None: the behaviour.")
    registry: str | None = Field(
        None, description="Folder of the registry and name in it, where alone it promotes; None: it was made for none."
    )
    worth_testing: list[str] = Field(description="Checkpoints for an A/B test, the best first.")
    episodes_needed: int | None = Field(description="About how many more would let the bound clear the margin.")
    recorded: float = Field(description="Mean discounted return of the judging episodes.")
    candidates: list[Candidate] = Field(description="The best first.")
    dataset: DatasetRef
    selecting: DatasetRef
    judging: DatasetRef
    behaviour: str | None = Field(description="Model of what acted; None: action_logp was recorded.")
    calibration: list[tuple[float, float, int]] = Field(
        [], description="Of a fitted behaviour: (probability it said, share that was done, actions) by tenths."
    )
    calibration_error: float | None = Field(None, description="Expected calibration error on episodes it was not fitted to.")
    risk: float
    confidence: float
    gamma: float
    explore: bool | None = Field(
        None, description="What was judged samples its actions; otherwise it takes the likeliest one. None: not noted."
    )
    horizon: int | None
    reward: str = Field("", description="What the reward is called in the log's source; empty: not known.")
    reasons: list[str] = Field(description="Why the log cannot be judged; empty unless refused.")
    warnings: list[str]
    seconds: float
    parts: list[LogPart] = Field([], description="Both ends of the log, where it drifts.")
    margin: float = Field(0.0, description="Discounted return by which a candidate has to be better, at least.")
    min_overlap: float = Field(0.8, description="Overlap that a candidate has to have, at least.")
    signature: str | None = Field(
        None, description="By the key of those who may decide, over all else; None: there was no key."
    )

    def signed(self) -> DecisionResult:
        """The result with a signature, if a key is set."""
        return self.model_copy(update={"signature": signature_of("decision", self._content())})

    @property
    def wrong_signature(self) -> str | None:
        """Why the key did not sign this content, as the end of a sentence; None if it did, or if no key is set."""
        return wrong_with("decision", self._content(), self.signature)

    def _content(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude={"signature", "reused"}, exclude_defaults=True)

    def card(self) -> Card:
        first = self.first
        judged = [candidate for candidate in self.candidates if candidate.judged is not None]
        fair = 0 if self.verdict == "refused" else sum(not candidate.reasons for candidate in judged)
        guardrails = [(candidate, finding) for candidate in judged for finding in candidate.guardrails]
        calibration = "" if self.calibration_error is None else f"; calibrated to within {100 * self.calibration_error:.1f} %"
        acted = f"{self.behaviour}{calibration}" if self.behaviour else "the recorded action_logp"
        advice, following = NEXT[self.verdict], ""
        if self.verdict == "promote":
            advice = self.adopt or (UNBOUND if self.registry is None else "")
            following = "" if advice else command("offline", "promote", self.registry, self.uri)
        elif self.verdict == "test" and first.clone:
            advice += OR_CLONE.format(clone=first.clone)
        elif self.verdict == "refused" and self.is_checkpoint:
            advice += " See what it would do:"
            following = command("offline", "explain", self.dataset.uri, self.checkpoint)
        unit = f" {self.reward}" if self.reward else ""
        says_something = first.judged is not None and self.verdict != "refused"
        shown = self.candidates[: MOST_REFUSED if self.verdict == "refused" else MOST_ROWS]
        more = len(self.candidates) - len(shown)
        return Card(
            "Decision",
            verdict=COLORS.get(self.verdict, "grey"),
            word=self.verdict.capitalize(),
            sentence=self.sentence,
            facts={
                "Against": "what the log recorded" if self.against == BEHAVIOUR else self.against,
                **({} if self.registry is None else {"For": self.registry}),
                "Candidate": f"{first.name}{f', difference {first.judged}{unit}' if says_something else ''}",
                **_marked("Its guardrails", {finding.name: finding.mark for finding in first.guardrails}),
                **_marked("By group", {finding.group: finding.mark for finding in first.groups}),
                "Policy": self.checkpoint,
                "Dataset": self.dataset,
                "Candidates": f"{len(self.candidates):,}, {len(judged):,} of them finalists; {fair:,} could be judged",
                **({"Intervals": f"{told_confidence(self.confidence)}, of each candidate alone"} if judged else {}),
                **({} if self.episodes_needed is None else {"Episodes needed": f"about {self.episodes_needed:,} more"}),
                "Time": duration_text(self.seconds),
            },
            warnings=self.warnings,
            sections=[
                Section("In plain words", in_words(self)),
                Section(
                    "Candidates",
                    [f"The first {len(shown):,}, and {more:,} more in result.json."] if more else [],
                    columns=COLUMNS,
                    rows=[_row(candidate) for candidate in shown],
                ),
                Section(
                    "Guardrails",
                    columns=["Candidate", "Guardrail", "Recorded", "Difference", "At the worst", "May fall by", "Holds"],
                    rows=[_guardrail_row(candidate.name, finding) for candidate, finding in guardrails],
                ),
                Section(
                    f"{first.name} by group",
                    [_about_groups(self, first)] if first.groups else [],
                    columns=["Group", "Judging episodes", "Difference", "Shown"],
                    rows=[
                        [finding.group, finding.episodes, finding.difference or "–", finding.mark] for finding in first.groups
                    ],
                ),
                Section(
                    "How the log drifts",
                    columns=["Part", "Episodes", "Mean return", "Actions", "Judging episodes", f"Difference of {first.name}"],
                    rows=[_part_row(part, first) for part in self.parts],
                ),
                Section("Worth an A/B test", self.worth_testing),
                Section("Why this log cannot be judged", self.reasons),
                Section(f"Where {first.name} acts otherwise than what acted", first.differs_where),
                steps_section(
                    f"Steps of the log at which {first.name} differs most, and in brackets its "
                    f"{likelihood_of(first.differs_at)}",
                    first.differs_at,
                    several=True,
                ),
                Section(f"Where the log has little of what {first.name} does", first.unsupported_where),
                Section(
                    f"Episodes that carry the estimate of {first.name}",
                    columns=["Episode", "Share of the evidence"],
                    rows=[[name, f"{100 * share:.1f} %"] for name, share in first.carried_by.items()],
                ),
                Section(
                    f"Value of {first.name} by each method (wdr decides)",
                    columns=["Method", return_head(self.gamma, self.reward)],
                    rows=[[method_in_words(name), value] for name, value in first.estimates.items()],
                ),
            ],
            details={
                "Ranked on": count_text(self.selecting.episodes, "episode"),
                "Judged on": f"{self.judging.episodes:,} other episodes",
                "Recorded": f"{number_text(self.recorded)}{unit} on the judging episodes{told_discount(self.gamma)}",
                **({} if self.horizon == 1 else {"Horizon": horizon_text(self.horizon)}),
                "Risk": f"{100 * self.risk:g} % over all that are judged, of a difference of {self.margin:g} or less",
                **({"What acted": acted} if judged else {}),
            },
            draw=figures.drawn(self._pictures),
            advice=advice,
            next=following,
            about=(self.checkpoint, None) if self.is_checkpoint else (self.dataset.uri, self.dataset.version),
            places=[f"{self.uri}/card"],
        )

    def _pictures(self) -> list[figures.Picture]:
        drawn = self.candidates[:MOST_DRAWN]
        differences = {candidate.name: (_bounds(candidate.judged), _bounds(candidate.selected)) for candidate in drawn}
        overlaps = {
            candidate.name: candidate.overlap
            for candidate in drawn
            if candidate.judged is not None and candidate.overlap is not None
        }
        lights = {
            f"{candidate.name}, {finding.name}": (
                finding.mark.word,
                f"{finding.difference}, may fall by {finding.told(finding.max_fall)}",
            )
            for candidate in self.candidates
            if candidate.judged is not None
            for finding in candidate.guardrails
        }
        lines = {"what runs today": 0.0, "margin": self.margin or None}
        said, done = "probability by the model", "share that was done"
        return [
            partial(figures.forest, rows=differences, x=f"difference of {return_name(self.gamma, self.reward)}", lines=lines),
            partial(figures.shares, values=overlaps, x="overlap with what acted", least=self.min_overlap),
            *([partial(figures.lights, rows=dict([*lights.items()][:MOST_LIGHTS]))] if lights else []),
            *([partial(figures.calibration, tenths=self.calibration, x=said, y=done)] if self.calibration else []),
        ]

    @property
    def first(self) -> Candidate:
        """The candidate that the sentence is about."""
        return next((candidate for candidate in self.candidates if candidate.checkpoint == self.checkpoint), self.candidates[0])

    @property
    def is_checkpoint(self) -> bool:
        """Whether what is ranked first can be promoted; a rule and the like can be adopted only."""
        return kind_of(self.checkpoint) == "checkpoint"

    @property
    def adopt(self) -> str | None:
        """What to do in place of a promotion, where what is ranked first is no checkpoint; None: it is one."""
        if self.is_checkpoint:
            return None
        others = [candidate.name for candidate in self.candidates if self._is_shown_checkpoint(candidate)]
        return ADOPT + (OR_CHECKPOINT.format(other=others[0], first=self.first.name) if others else "")

    def _is_shown_checkpoint(self, candidate: Candidate) -> bool:
        judged = candidate.judged
        if judged is None or candidate.reasons or kind_of(candidate.checkpoint) != "checkpoint":
            return False
        is_shown = judged.p_value <= self.risk and judged.at_least >= self.margin
        return is_shown and all(finding.passed for finding in candidate.guardrails)

    @property
    def promoted(self) -> str | None:
        """URI of the policy that may replace what runs today; None if none may."""
        return self.checkpoint if self.verdict == "promote" else None

    def table(self) -> pl.DataFrame:
        """One row a candidate, the best first: its judged difference, its overlap, and what speaks against it."""
        import polars as pl

        judged = [candidate.judged for candidate in self.candidates]
        return pl.DataFrame(
            {
                "candidate": [candidate.name for candidate in self.candidates],
                "score": pl.Series([candidate.score for candidate in self.candidates], dtype=pl.Float64),
                **{
                    name: pl.Series(
                        [None if difference is None else getattr(difference, name) for difference in judged], dtype=pl.Float64
                    )
                    for name in ("value", "low", "high", "chance", "effective_episodes")
                },
                "overlap": [None if candidate.judged is None else candidate.overlap for candidate in self.candidates],
                "guardrails": [
                    all(finding.passed for finding in candidate.guardrails) if candidate.guardrails else None
                    for candidate in self.candidates
                ],
                "reasons": ["; ".join(candidate.reasons) for candidate in self.candidates],
                "checkpoint": [candidate.checkpoint for candidate in self.candidates],
            }
        )


def _bounds(difference: Difference | None) -> figures.Interval | None:
    return None if difference is None else (difference.value, difference.low, difference.high)


def _row(candidate: Candidate) -> list[object]:
    judged = candidate.judged
    return [
        candidate.name,
        "no finalist" if judged is None else judged,
        "–" if candidate.selected is None else candidate.selected,
        "–" if candidate.score is None else number_text(candidate.score, sign="+"),
        "–" if judged is None else f"{100 * judged.chance:.1f} %",
        "–" if judged is None else f"{judged.effective_episodes:,.1f}",
        "–" if judged is None or candidate.overlap is None else f"{100 * candidate.overlap:.0f} %",
        ", ".join(f"{finding.mark}: {finding.name}" for finding in candidate.guardrails)
        or ("–" if judged is None else "none set"),
        "; ".join([*candidate.reasons, *_open_guardrails(candidate)]) or "–",
    ]


def _open_guardrails(candidate: Candidate) -> list[str]:
    return [f"{finding.name} is not shown to hold" for finding in candidate.guardrails if not finding.passed]


def in_words(result: DecisionResult) -> list[str]:
    """The gain, how far its interval holds, guardrails, the next best, and what to do besides the command that comes next."""
    said = [*_sentences(result)]
    if result.verdict in ("promote", "test") and result.is_checkpoint and result.explore is not None:
        said.append(f"What was judged of {result.first.name} {as_judged(explore=result.explore)}")
    return [*said, *([NEXT["promote"]] if result.verdict == "promote" else [])]


def _sentences(result: DecisionResult) -> Iterator[str]:
    first = result.first
    if (judged := first.judged) is None or result.verdict == "refused":
        return
    if result.against == BEHAVIOUR and result.recorded:
        share, least = (100 * value / abs(result.recorded) for value in (judged.value, judged.at_least))
        gain = f"{first.name} is {share:+.0f} % from that, {least:+.0f} % at the worst"
        if judged.at_least <= 0 and result.verdict != "promote":
            gain += ", so a gain is not shown"
        unit = f" {result.reward}" if result.reward else ""
        yield f"The log returned {number_text(result.recorded)}{unit} an episode; {gain}."
    counting = min(judged.effective_episodes, judged.carrying_episodes)
    trust = "enough to take its interval as it is"
    if counting < FAIR:
        trust = "so few that its interval " + ("may be too narrow" if counting < THIN else "is to be taken with care")
    why = "as the others did little of what it does"
    if counting < judged.effective_episodes:
        why = "as a few episodes carry most of the difference"
    yield f"Of {result.judging.episodes:,} judging episodes about {counting:,.0f} count for {first.name}, {why}: {trust}."
    yield from _guardrails(first)
    for candidate in result.candidates:
        other = None if candidate is first or candidate.reasons else candidate.judged
        if other is not None and _is_better_backed(other, judged):
            count = f"{other.effective_episodes:,.0f}"
            yield f"{candidate.name} gains {other.value:.3g}, and more episodes count for it (about {count})."
            return


def _guardrails(first: Candidate) -> Iterator[str]:
    if not first.guardrails:
        yield "No guardrail was set: nothing here says whether another return falls (guardrails)."
    yield from map(str, sorted(first.guardrails, key=lambda finding: finding.passed))


def _guardrail_row(name: str, finding: GuardrailFinding) -> list[object]:
    difference = f"{finding.difference} {finding.unit}".rstrip()
    recorded = "–" if finding.recorded is None else finding.told(finding.recorded)
    return [
        name,
        finding.name,
        recorded,
        difference,
        finding.told(finding.difference.at_least, "+"),
        finding.told(finding.max_fall),
        finding.mark,
    ]


def _marked(name: str, marks: Mapping[str, Mark]) -> dict[str, str]:
    """A fact of what each of some is shown to do: `comfort holds, noise unsure`; none of none."""
    return {name: list_text([f"{of} {mark.word}" for of, mark in marks.items()], MOST_MARKS)} if marks else {}


def _about_groups(result: DecisionResult, first: Candidate) -> str:
    tested = sum(finding.difference is not None for finding in first.groups)
    return (
        f"Of {count_text(len(first.groups), 'group')} {tested:,} {'is' if tested == 1 else 'are'} tested, to both sides, at a "
        f"risk of {100 * result.risk:g} % over all of them together (Holm). Intervals are {100 * result.confidence:g} %, of "
        "each group alone: groups that are not shown may seem to differ by chance."
    )


def _part_row(part: LogPart, first: Candidate) -> list[object]:
    finding = next((finding for finding in first.parts if finding.group == part.name), None)
    actions = ", ".join(f"{name}: {number_text(value)}" for name, value in part.actions.items()) or "–"
    effect = [0, "–"] if finding is None else [finding.episodes, finding.difference or "too few episodes count to tell"]
    return [part.name, part.episodes, part.mean_return, actions, *effect]


def _is_better_backed(other: Difference, first: Difference) -> bool:
    return other.effective_episodes > first.effective_episodes and other.value >= NEARLY * first.value > 0
