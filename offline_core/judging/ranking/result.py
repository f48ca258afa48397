"""What comes of a look for outliers."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from offline_core.data.datasets.dataset import DatasetRef
from offline_core.judging.ranking.advice import Advice
from offline_core.judging.ranking.measures import Measures
from offline_core.judging.ranking.reasons import UNIT, deviations_text, share_text, with_unit_once, without_unit
from offline_core.runtime.reporting.card import Card, Section, command
from offline_core.runtime.result import Part, Result
from offline_core.runtime.units import count_text, cut_text, duration_text

MOST_TOLD = 3
"""Outliers among the facts of a card."""
MOST_OF_ID = 40
"""Characters of an episode's id among them."""


class Outlier(Part):
    """An episode that is unlike the others."""

    episode: int = Field(description="Its number in the order of the dataset, from 0.")
    eps_id: str
    score: float = Field(description="Robust standard deviations of what is farthest from the other episodes.")
    farther_than: int = Field(description="Episodes with a lower score.")
    reason: str

    def __str__(self) -> str:
        return f"episode {self.eps_id} (number {self.episode:,}): {self.reason}"


class OutlierResult(Result):
    """The episodes by how unlike the others they are, and what the dataset speaks for."""

    uri: str = Field(description="Folder of the scores; what `outliers` of a pruning takes.")
    scores: str = Field(description="Parquet, a row an episode in the order of the dataset: score, reason and all features.")
    dataset: DatasetRef
    threshold: float
    count: int = Field(description="Episodes with a score of the threshold or more.")
    drawn: int = Field(
        0,
        description="Outliers that are farthest in what was chosen or came of it, where each episode is one choice by lot: "
        "they are chance and no defects, and a log without them is biased.",
    )
    outliers: list[Outlier] = Field(description="The first of them, the farthest first.")
    quantiles: dict[str, float] = Field(description="Scores that so large a share of the episodes is below.")
    notes: list[str] = Field([], description="What could not be looked at, and why.")
    measures: Measures
    advice: Advice
    seconds: float

    def card(self) -> Card:
        scores = ", ".join(
            without_unit(f"{100 * float(share):g} % up to {deviations_text(value)}") for share, value in self.quantiles.items()
        )
        columns = ("Episode", "Number", "Score", "Farther out than (of the episodes)", "Reason")
        others = self.dataset.episodes - 1
        rows = [
            (
                outlier.eps_id,
                outlier.episode,
                without_unit(deviations_text(outlier.score)),
                share_text(outlier.farther_than, others).removesuffix(" of the episodes"),
                without_unit(outlier.reason),
            )
            for outlier in self.outliers
        ]
        where = f"outlier_score < {self.threshold:g}"
        return Card(
            "Outliers",
            word="Advice",
            sentence=self.advice.what,
            facts={
                "Dataset": self.dataset,
                "Because": self.advice.why,
                "Outliers": f"{self.count:,} of {self.dataset.episodes:,} episodes, from {deviations_text(self.threshold)} on",
                **{
                    f"Episode {cut_text(outlier.eps_id, MOST_OF_ID)}": with_unit_once(outlier.reason)
                    for outlier in self.outliers[:MOST_TOLD]
                },
                "Time": duration_text(self.seconds),
            },
            warnings=self.notes,
            sections=[
                Section("Outliers", [*self._about_outliers()], columns=columns, rows=rows),
                Section("What to run first", [*self.advice.first.commands, *self.advice.first.parameters]),
                Section("What to run next", [*self.advice.second.commands, *self.advice.second.parameters]),
                Section("What the data is like", self.advice.sentences),
            ],
            details={"Scores": self.scores, "Scores of the episodes": f"{scores}{UNIT}"},
            next=command("offline", "prune", self.dataset.uri, "-s", f"outliers={self.uri}", "-s", f"where={where}")
            if self.count and not self.drawn
            else " && ".join(self.advice.first.commands if self.drawn == self.count else []),
            about=(self.dataset.uri, self.dataset.version),
            places=[f"{self.uri}/card"],
        )

    def _about_outliers(self) -> Iterator[str]:
        if self.outliers:
            yield f"Scores and distances are in{UNIT}."
        if self.drawn:
            yield (
                f"Of {count_text(self.count, 'outlier')}, {count_text(self.drawn, 'episode')} differ most in what was chosen "
                "or came of it. Each episode is one choice, partly by lot, so that may be chance and no defect: look before "
                "you prune by it. A log without rare choices or outcomes is biased, and so is all that is learned or "
                "estimated from it."
            )
