"""The result of an evaluation."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from offline_core.runtime.result import PolicyResult

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

    @property
    def mean_return(self) -> float:
        """Undiscounted."""
        return self.metrics["episode_return_mean"]
