"""What comes of a look for outliers."""

from __future__ import annotations

from pydantic import Field

from offline_core.data.datasets.dataset import DatasetRef
from offline_core.judging.ranking.advice import Advice
from offline_core.judging.ranking.measures import Measures
from offline_core.judging.ranking.reasons import UNIT, deviations_text, share_text, with_unit_once, without_unit
from offline_core.runtime.reporting.card import Card, Section, command
from offline_core.runtime.result import Part, Result
from offline_core.runtime.units import duration_text

MOST_TOLD = 3
"""Outliers among the facts of a card."""


class Outlier(Part):
    """An episode that is unlike the others."""

    episode: int = Field(description="Its number in the order of the dataset, from 0.")
    eps_id: str
    score: float = Field(description="Robust standard deviations of what is farthest from the other episodes.")
    farther_than: int = Field(description="Episodes with a lower score.")
    reason: str

    def __str__(self) -> str:
        return f"episode {self.episode:,} ({self.eps_id}): {self.reason}"


class OutlierResult(Result):
    """The episodes by how unlike the others they are, and what the dataset speaks for."""

    uri: str = Field(description="Folder of the scores; what `outliers` of a pruning takes.")
    scores: str = Field(description="Parquet, a row an episode in the order of the dataset: score, reason and all features.")
    dataset: DatasetRef
    threshold: float
    count: int = Field(description="Episodes with a score of the threshold or more.")
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
        columns = ("Episode", "Id", "Score", "Farther out than (of the episodes)", "Reason")
        others = self.dataset.episodes - 1
        rows = [
            (
                outlier.episode,
                outlier.eps_id,
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
                **{f"Episode {outlier.episode:,}": with_unit_once(outlier.reason) for outlier in self.outliers[:MOST_TOLD]},
                "Time": duration_text(self.seconds),
            },
            warnings=self.notes,
            sections=[
                Section("Outliers", [f"Scores and distances are in{UNIT}."] if rows else [], columns=columns, rows=rows),
                Section("What to run first", [*self.advice.first.commands, *self.advice.first.parameters]),
                Section("What to run next", [*self.advice.second.commands, *self.advice.second.parameters]),
                Section("What the data is like", self.advice.sentences),
            ],
            details={"Scores": self.scores, "Scores of the episodes": f"{scores}{UNIT}"},
            next=command("offline", "prune", self.dataset.uri, "-s", f"outliers={self.uri}", "-s", f"where={where}")
            if self.count
            else " && ".join(self.advice.first.commands),
            about=(self.dataset.uri, self.dataset.version),
            places=[f"{self.uri}/card"],
        )
