"""What comes of training an expert."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from offline_core.storage.dataset import DatasetRef


class ExpertResult(BaseModel):
    """What became of a training."""

    model_config = ConfigDict(frozen=True)

    checkpoint: str
    """URI of the best policy."""
    reached_target: bool
    target_return: float | None
    metrics: dict[str, float]
    """Of the best policy's evaluation."""
    env_steps: int
    """Environment steps learned from; resets are none."""
    seconds: float
    curve: list[tuple[int, float]]
    """(environment steps, mean greedy return) of each evaluation."""
    recording: DatasetRef | None = None
    """Of the policy while it learned, if that was asked for."""
    reused: bool = Field(False, description="It was there already, made by the same operation of the same things.")
