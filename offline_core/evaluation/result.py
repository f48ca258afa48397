"""What comes of an evaluation."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

EPISODE_METRICS = (
    "episode_return_mean",
    "episode_return_std",
    "episode_return_min",
    "episode_return_max",
    "episode_length_mean",
    "episodes",
    "success_rate",
)
"""What evaluations measure by themselves, the last where the environment tells; others are of metrics of one's own."""

FOLLOWED = ("episode_return_mean", "success_rate")
"""Those that `metrics.jsonl` has a point of for each evaluation while a policy learns."""


class EvaluationResult(BaseModel):
    """How a policy played."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    uri: str = Field(description="Where this is kept, below the checkpoint; nothing is there if that cannot be written.")
    checkpoint: str
    environment: str
    metrics: dict[str, float] = Field(description="Of returns, lengths and successes, and those of one's own.")
    returns: list[float] = Field(description="Of each episode.")
    lengths: list[int] = Field(description="Of each episode, in steps.")
    seconds: float
    reused: bool = Field(False, description="It was there already, made by the same operation of the same things.")
