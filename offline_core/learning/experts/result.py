"""The result of training an expert."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from offline_core.data.datasets.dataset import DatasetRef
from offline_core.runtime.result import PolicyResult


class ExpertResult(PolicyResult):
    """The best policy, its evaluation, and the learning curve."""

    reached_target: bool
    target_return: float | None
    metrics: dict[str, float]
    """Of the best policy's evaluation."""
    actions: Literal["greedy", "sampled"] = "greedy"
    """Of the evaluations: always the most likely ones, or drawn from the policy."""
    env_steps: int
    """Environment steps learned from, without resets."""
    updates: int
    """Of the policy: of ppo one a rollout."""
    seconds: float
    curve: list[tuple[int, float]]
    """(environment steps, mean return) of each evaluation."""
    snapshots: dict[float, str] = Field({})
    """The checkpoints of `snapshots_at_returns` that were reached, by return."""
    recording: DatasetRef | None = None
    """The episodes recorded during training, if `recording` is configured."""

    @property
    def mean_return(self) -> float:
        """In the evaluation of the best policy."""
        return self.metrics["episode_return_mean"]

    @property
    def best(self) -> str:
        """URI of the checkpoint to use."""
        return self.checkpoint
