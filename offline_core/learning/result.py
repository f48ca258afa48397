"""What comes of training a policy."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from offline_core.storage.dataset import DatasetRef


class TrainingResult(BaseModel):
    """What came of a training run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    checkpoint: str = Field(description="The policy to use: the best one evaluated, the last one if none was.")
    last_checkpoint: str = Field(description="The policy at the end.")
    dataset: DatasetRef
    updates: int
    steps: int = Field(description="Steps learned from, each epoch counted anew.")
    epochs: float = Field(description="Passes over the dataset, with fractions.")
    metrics: dict[str, float] = Field(description="Of the best evaluation; empty without an environment.")
    target_return: float | None
    reached_target: bool
    curve: list[tuple[int, float]] = Field(description="(updates, mean return) of each evaluation.")
    losses: list[tuple[int, float]] = Field(description="(updates, mean loss since the entry before).")
    seconds: float
    load_seconds: float = Field(description="Until the first batch could be drawn, Ray and its actors included.")
    update_seconds: float
    data_wait_seconds: float
    steps_per_second: float = Field(description="While updating and waiting for batches.")
