"""What the quality gate found."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Literal

import numpy as np
from pydantic import Field

from offline_core.data.datasets.dataset import DatasetRef
from offline_core.data.datasets.dataset_card import BOTH, reading, splitting
from offline_core.data.datasets.statistics import Statistics
from offline_core.data.quality.config import QualityConfig
from offline_core.runtime.reporting import figures
from offline_core.runtime.reporting.card import Card, Mark, Section, command
from offline_core.runtime.reporting.card import Verdict as CardVerdict
from offline_core.runtime.result import Part, Result
from offline_core.runtime.units import count_text

Verdict = Literal["pass", "warn", "fail"]

CHECKS = "_checks"
"""Folder of the reports inside a dataset, one a version, named like its manifest."""
SEVERITY: dict[str, int] = {"pass": 0, "warn": 1, "fail": 2, "never": 3}
"""From harmless to serious; nothing is as serious as what stops a gate that never stops."""

GO_ON = "Correct the data. To go on with it as it is, set stop_on to never."
"""What comes next where the gate stops."""
COLORS: Mapping[str, CardVerdict] = {"fail": "bad", "warn": "fair", "not applicable": "grey", "pass": "good"}
"""Colours of outcomes, the worst first."""


class Example(Part):
    """A step that breaks a rule."""

    dataset: str
    eps_id: str
    t: int = Field(description="Index of the step within the whole episode.")


class Finding(Part):
    """What one rule came to."""

    rule: str
    verdict: Verdict
    count: int = Field(description="How many steps, episodes or numbers break the rule; the message says which.")
    of: int = Field(description="How many were looked at; 0 where the rule does not apply.")
    message: str
    examples: list[Example] = Field([], description="The first few.")
    advice: str = Field("", description="What to do about it; empty if nothing is to be done.")

    @property
    def outcome(self) -> Verdict | Literal["not applicable"]:
        """The verdict for people: a rule that looked at nothing and did not complain has not been met."""
        return "not applicable" if self.verdict == "pass" and not self.of else self.verdict

    def __str__(self) -> str:
        """What breaks the rule, the first place of it, and what to do."""
        first = self.examples[0] if self.examples else None
        where = f"First: episode {first.eps_id}, step {first.t}." if first else ""
        return f"{self.rule} ({self.verdict}): {' '.join(filter(None, (self.message, where, self.advice)))}"


class Histogram(Part):
    """Finite numbers counted in bins; one more edge than counts, none of either without a number."""

    edges: list[float]
    counts: list[int]

    @classmethod
    def of(cls, values: np.ndarray, bins: int = 40) -> Histogram:
        finite = values[np.isfinite(values)].astype(np.float64)
        if len(finite) == 0:
            return cls(edges=[], counts=[])
        low, high = float(finite.min()), float(finite.max())
        if high - low < 1e-9 * max(1.0, abs(high)):
            low, high = low - max(1.0, 1e-3 * abs(low)), high + max(1.0, 1e-3 * abs(high))  # all alike: one bin in the middle
        counts, edges = np.histogram(finite, np.linspace(low, high, bins + 1))
        return cls(edges=edges.tolist(), counts=counts.tolist())


class QualityReport(Result):
    """Whether a dataset is good, and why: one finding a rule, those that passed included."""

    dataset: DatasetRef
    verdict: Verdict = Field(description="That of the worst finding.")
    findings: list[Finding]
    statistics: Statistics = Field(description="As counted by the check, with those of the columns.")
    returns: Histogram = Field(description="Of the returns of the episodes.")
    lengths: Histogram = Field(description="Of their lengths in steps.")
    config: QualityConfig
    judged_by: str | None = Field(
        None,
        description="The environment or the held-out dataset that can judge a policy learned from it. "
        "None: nothing can yet, so it is split first.",
    )

    def card(self) -> Card:
        worst_first = sorted(self.findings, key=lambda finding: [*COLORS].index(finding.outcome))
        rules = {outcome: [finding.rule for finding in self.findings if finding.outcome == outcome] for outcome in COLORS}
        met = f"{len(rules['pass'])} of {len(self.findings)} rules are met, {len(rules['not applicable'])} do not apply"
        broken = ", ".join(rules["fail"] or rules["warn"])
        bins = {"return": self.returns, "steps per episode": self.lengths}
        if self.returns == self.lengths:
            bins = {BOTH: self.returns}
        ref, statistics = self.dataset, self.statistics
        return Card(
            "Quality",
            verdict="bad" if self.verdict == "fail" else "good",
            word="Gate failed" if self.verdict == "fail" else "Gate passed",
            sentence=f"{'Broken' if rules['fail'] else 'Look at'} {broken}; {met}." if broken else f"{met}.",
            facts={
                "Dataset": ref,
                "Ends": f"{count_text(statistics.terminated, 'episode')} terminated, {statistics.truncated:,} truncated",
            },
            warnings=[str(finding) for finding in worst_first if finding.verdict != "pass"],
            sections=[
                Section(
                    "Rules",
                    columns=("verdict", "rule", "found"),
                    rows=[
                        (Mark(finding.outcome, COLORS[finding.outcome]), finding.rule, finding.message)
                        for finding in worst_first
                    ],
                )
            ],
            draw=figures.drawn(
                lambda: [
                    partial(figures.counts, edges=histogram.edges, heights=histogram.counts, x=x)
                    for x, histogram in bins.items()
                ]
            ),
            advice=GO_ON if self.verdict == "fail" else "",
            next="" if self.verdict == "fail" else self._next(),
            about=(ref.uri, ref.version),
            # Nothing is written next to files that are not a version of this pipeline.
            places=[f"{ref.uri}/{CHECKS}/{ref.version:06d}"] if ref.version else [],
        )

    def _next(self) -> str:
        if self.dataset.version and self.judged_by is None and self.dataset.episodes > 1:
            return splitting(self.dataset)
        return command("offline", "train", *reading(self.dataset))
