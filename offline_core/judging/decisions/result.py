"""The result of a decision: the verdict first, then the numbers behind it."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

from offline_core.data.datasets.dataset import DatasetRef
from offline_core.runtime.result import PolicyResult

if TYPE_CHECKING:
    import polars as pl

SIDES, MODEL = "sides", "behaviour"
"""Folders inside the decision's: both sides of the log, and the model of what acted."""

Verdict = Literal["promote", "test", "collect", "keep", "refused"]
"""promote: replace what runs today. test: an A/B test is worth it. collect: more episodes would tell. keep: no candidate is
better. refused: this log cannot tell."""


class _Part(BaseModel):
    # A bound may be infinite, which JSON's null would lose.
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


class Difference(_Part):
    """A candidate's mean discounted return minus that of what runs today, on the same episodes."""

    value: float
    low: float = Field(description="Lower end of the interval of `confidence`, for this candidate alone.")
    high: float = Field(description="Upper end.")
    standard_error: float
    at_least: float = Field(description="One-sided lower bound at this candidate's share of the risk.")
    p_value: float = Field(description="One-sided, of a difference no larger than the margin.")
    effective_episodes: float = Field(description="Episodes that are left by their weights (Kish).")
    carrying_episodes: float = Field(description="Episodes that carry the difference: the effective number of influences.")
    largest_share: float = Field(description="Of one episode, in the squared weights or in the influences: the larger one.")

    @property
    def chance(self) -> float:
        """How sure the log is of an improvement."""
        return 1 - self.p_value


class GuardrailFinding(_Part):
    """What is said of one guardrail for one candidate."""

    name: str
    difference: Difference = Field(description="p_value: of a fall by more than max_fall.")
    max_fall: float
    passed: bool = Field(description="Shown not to fall by more, at the whole risk; several finalists share it.")


class Candidate(_Part):
    """One policy, and what the log says of it."""

    checkpoint: str
    fingerprint: str
    name: str = Field(description="Short, and different for each candidate of a decision.")
    selected: Difference | None = Field(description="On the side that selects; None: it could not be estimated there.")
    judged: Difference | None = Field(description="On the side that judges; None: it is no finalist.")
    score: float = Field(
        description="What it is ranked by: the difference on the selecting side, by wdr and by its Q function."
    )
    overlap: float = Field(description="Share of its actions that the behaviour would plausibly take.")
    guardrails: list[GuardrailFinding] = []
    estimates: dict[str, float] = Field(
        {}, description="Of its value on the judging side, by method; shown, and not decided by."
    )
    reasons: list[str] = Field([], description="Why it cannot be judged, or is not promoted.")
    differs_where: list[str] = Field([], description="Where it acts otherwise than the behaviour, in words.")
    unsupported_where: list[str] = Field([], description="Where the log has little of what it does, in words.")
    carried_by: dict[str, float] = Field(
        {}, description="Share of the evidence by id, of the ten episodes that carry the most."
    )


class DecisionResult(PolicyResult):
    """Which of the candidates may replace what runs today."""

    model_config = ConfigDict(ser_json_inf_nan="constants")

    uri: str = Field(description="Folder of the decision.")
    verdict: Verdict
    sentence: str = Field(description="The verdict in one sentence.")
    checkpoint: str = Field(description="The policy that is promoted, or ranked first.")
    fingerprint: str = Field(description="Of that policy.")
    against: str
    against_fingerprint: str | None = Field(None, description="Of that checkpoint; None: the behaviour.")
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
    horizon: int | None
    reasons: list[str] = Field(description="Why the log cannot be judged; empty unless refused.")
    warnings: list[str]
    seconds: float

    @property
    def first(self) -> Candidate:
        """The candidate that the sentence is about."""
        return next((each for each in self.candidates if each.checkpoint == self.checkpoint), self.candidates[0])

    @property
    def promoted(self) -> str | None:
        """URI of the policy that may replace what runs today; None: none may."""
        return self.checkpoint if self.verdict == "promote" else None

    def table(self) -> pl.DataFrame:
        """One row a candidate, the best first: its judged difference, its overlap, and what speaks against it."""
        import polars as pl

        judged = [each.judged for each in self.candidates]
        return pl.DataFrame(
            {
                "candidate": [each.name for each in self.candidates],
                "score": [each.score for each in self.candidates],
                **{
                    name: pl.Series([None if each is None else getattr(each, name) for each in judged], dtype=pl.Float64)
                    for name in ("value", "low", "high", "chance", "effective_episodes")
                },
                "overlap": [None if each.judged is None else each.overlap for each in self.candidates],
                "guardrails": [
                    all(found.passed for found in each.guardrails) if each.guardrails else None for each in self.candidates
                ],
                "reasons": ["; ".join(each.reasons) for each in self.candidates],
                "checkpoint": [each.checkpoint for each in self.candidates],
            }
        )

    def __repr__(self) -> str:
        import polars as pl

        with pl.Config(tbl_cols=-1, tbl_width_chars=160, tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True):
            return f"{self.verdict}: {self.sentence}\n{self.table().drop('checkpoint')}"

    def __str__(self) -> str:
        return repr(self)

    def _repr_html_(self) -> str:
        return f"<p><b>{escape(self.verdict)}</b>: {escape(self.sentence)}</p>{self.table()._repr_html_()}"
