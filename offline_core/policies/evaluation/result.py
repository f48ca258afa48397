"""The result of an evaluation."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from offline_core.data.datasets.dataset_card import returns_and_lengths
from offline_core.runtime.reporting import figures
from offline_core.runtime.reporting.card import Card, command
from offline_core.runtime.reporting.returns import episode_facts, played
from offline_core.runtime.result import PolicyResult
from offline_core.runtime.units import duration_text

EVALUATIONS = "_evaluations"
"""Folder of them, below a checkpoint."""
EPISODE_METRICS = (
    "episode_return_mean",
    "episode_return_std",
    "episode_return_min",
    "episode_return_max",
    "episode_length_mean",
    "episodes",
    "success_rate",
)
"""The built-in metrics; success_rate where infos say so. All others are user metrics."""

FOLLOWED = ("episode_return_mean", "success_rate")
"""Metrics that `metrics.jsonl` holds for each evaluation during training."""


class EvaluationResult(PolicyResult):
    """How a policy played."""

    uri: str = Field(description="Where this is stored, below the checkpoint; no file exists if the folder cannot be written.")
    environment: str
    actions: Literal["sampled", "greedy"] = "greedy"
    metrics: dict[str, float] = Field(description="Built-in and user metrics by name.")
    returns: list[float] = Field(description="Of each episode.")
    lengths: list[int] = Field(description="Of each episode, in steps.")
    seconds: float

    def card(self) -> Card:
        told, own = played(self.metrics, actions=self.actions), [name for name in self.metrics if name not in EPISODE_METRICS]
        return Card(
            "Evaluation",
            verdict=told.verdict,
            word=told.word,
            sentence=told.sentence,
            facts={
                "Policy": self.checkpoint,
                "Environment": self.environment,
                **episode_facts(self.metrics),
                "Time": duration_text(self.seconds),
            },
            details={f"Metric {name}": self.metrics[name] for name in own},
            draw=figures.drawn(lambda: returns_and_lengths({"played": self.returns}, {"played": self.lengths})),
            next=command("offline", "export-policy", self.checkpoint),
            about=(self.checkpoint, None),
            places=[self.uri.removesuffix(".json")],
        )

    @property
    def mean_return(self) -> float:
        """Undiscounted."""
        return self.metrics["episode_return_mean"]
