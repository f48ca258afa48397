"""Parameters and result of a report."""

from __future__ import annotations

from pydantic import Field

from offline_core.runtime.config import Config
from offline_core.runtime.reporting.card import Card, Section, command
from offline_core.runtime.result import Result
from offline_core.runtime.units import count_text, duration_text, size_text


class ReportConfig(Config):
    """How much of the episodes is in the page, and what it links; everything else always is in it."""

    episodes: int = Field(
        40,
        ge=0,
        le=10_000,
        description="Of each dataset the steps of so many episodes are in the page: the best, the worst, the median one, "
        "outliers, and a sample. All are listed.",
    )
    listed: int = Field(
        20_000,
        ge=1,
        le=1_000_000,
        description="A larger dataset has so many rows in its list: those whose steps are in the page, and a sample.",
    )
    runs_url: str = Field(
        "",
        description="Address where runs of flows are seen, such as https://prefect.example/runs: datasets and policies link "
        "the run that made them.",
    )
    seed: int = Field(0, ge=0, le=2**31 - 1, description="Of the samples.")


MOST_PROBLEMS = 50
"""On a card."""


class ReportResult(Result):
    """What is in a report."""

    uri: str = Field(description="The HTML file.")
    root: str
    datasets: int
    versions: int = Field(description="Of all datasets.")
    policies: int
    runs: int = Field(description="Trainings, experts and fine-tunings, unfinished ones included.")
    episodes: int = Field(description="Listed, of all datasets.")
    episodes_with_steps: int
    problems: list[str] = Field(description="Files that could not be read, and why; the rest is in the page.")
    bytes: int = Field(description="Of the HTML file.")
    seconds: float

    def card(self) -> Card:
        return Card(
            "Report",
            verdict="good",
            word="Reported",
            sentence=f"{count_text(self.datasets, 'dataset')}, {count_text(self.runs, 'experiment')}, "
            f"{self.policies:,} policies are on one page.",
            facts={
                "Page": self.uri,
                "Versions": self.versions,
                "Episodes": f"{self.episodes:,} listed, {self.episodes_with_steps:,} with their steps",
                "Size": size_text(self.bytes),
                "Time": duration_text(self.seconds),
            },
            warnings=[f"{count_text(len(self.problems), 'file')} could not be read; the page names what and why."]
            if self.problems
            else [],
            sections=[Section("Not read", self.problems[:MOST_PROBLEMS])],
            next=command("python", "-m", "webbrowser", self.uri),
            about=(self.root, None),
        )
