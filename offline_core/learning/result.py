"""What comes of training a policy."""

from __future__ import annotations

from pydantic import AliasChoices, Field

from offline_core.data.datasets.dataset import DatasetRef
from offline_core.policies.series import KeptCheckpoint
from offline_core.runtime.result import PolicyResult


class TrainingResult(PolicyResult):
    """What came of a training run."""

    checkpoint: str = Field(description="The policy to use: the best one evaluated, the last one if none was.")
    last_checkpoint: str = Field(description="The policy at the end.")
    kept: list[KeptCheckpoint] = Field([], description="The series of policies that `keep` asks for, in order.")
    networks_sha256: str | None = Field(None, description="Hash of all networks at the end, in networks.safetensors.")
    dataset: DatasetRef
    updates: int
    steps: int = Field(description="Steps learned from, each epoch counted anew.")
    epochs: float = Field(description="Passes over the dataset, with fractions.")
    metrics: dict[str, float] = Field(description="Of the best evaluation, or the held-out loss if that chose the policy.")
    target_return: float | None
    reached_target: bool
    curve: list[tuple[int, float]] = Field(description="(updates, mean return) of each evaluation.")
    losses: list[tuple[int, float]] = Field(description="(updates, mean loss since the entry before).")
    training_metrics: dict[str, float] = Field(
        description="Metrics of the algorithm, as means of the last iteration.",
        validation_alias=AliasChoices("training_metrics", "watched"),
    )
    recorded_return: float | None = Field(
        None,
        description="What `q` among these is to be compared with: the mean discounted return from recorded steps on, of scaled "
        "rewards. None: no Q is learned.",
    )
    warnings: list[str] = Field([], description="Why the policy may be worth less than it seems.")
    held_out_losses: list[tuple[int, float]] = Field(description="(updates, loss on data that is not learned from).")
    seconds: float
    load_seconds: float = Field(description="Until the first batch could be drawn, Ray and its actors included.")
    update_seconds: float
    gather_seconds: float = Field(description="Putting batches together.")
    data_wait_seconds: float = Field(description="Waiting for the next window of steps.")
    bottleneck: str = Field(description="Where the time went, and what to do about it.")
    steps_per_second: float = Field(description="While updating and waiting for batches.")

    @property
    def mean_return(self) -> float | None:
        """In the evaluation of the best policy; None: no episode was played."""
        return self.metrics.get("episode_return_mean")

    @property
    def best(self) -> str:
        """URI of the checkpoint to use."""
        return self.checkpoint

    @property
    def last(self) -> str:
        """URI of the checkpoint at the end."""
        return self.last_checkpoint
