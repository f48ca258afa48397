"""What comes of training a policy."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from offline_core.storage.dataset import DatasetRef


class TrainingResult(BaseModel):
    """What came of a training run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    checkpoint: str = Field(description="The policy to use: the best one evaluated, the last one if none was.")
    last_checkpoint: str = Field(description="The policy at the end.")
    kept_checkpoints: list[str] = Field([], description="The policies of every so many iterations, if they were to be kept.")
    dataset: DatasetRef
    updates: int
    steps: int = Field(description="Steps learned from, each epoch counted anew.")
    epochs: float = Field(description="Passes over the dataset, with fractions.")
    metrics: dict[str, float] = Field(description="Of the best evaluation, or the held-out loss if that chose the policy.")
    target_return: float | None
    reached_target: bool
    curve: list[tuple[int, float]] = Field(description="(updates, mean return) of each evaluation.")
    losses: list[tuple[int, float]] = Field(description="(updates, mean loss since the entry before).")
    watched: dict[str, float] = Field(description="What the algorithm watches, as means of the last iteration.")
    held_out_losses: list[tuple[int, float]] = Field(description="(updates, loss on data that is not learned from).")
    seconds: float
    load_seconds: float = Field(description="Until the first batch could be drawn, Ray and its actors included.")
    update_seconds: float
    gather_seconds: float = Field(description="Putting batches together.")
    data_wait_seconds: float = Field(description="Waiting for the next chunk of steps.")
    bottleneck: str = Field(description="Where the time went, and what to do about it.")
    steps_per_second: float = Field(description="While updating and waiting for batches.")
    reused: bool = Field(False, description="It was there already, made by the same operation of the same things.")
