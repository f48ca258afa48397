"""Parameters of learning from what a policy plays itself."""

from __future__ import annotations

from typing import Protocol

from pydantic import Field

from offline_core.learning.config import AdamConfig, EvaluationsConfig, KeepConfig, TorchConfig
from offline_core.runtime.config import Config


class ReplayConfig(Config):
    """Which played steps are learned from, and how often."""

    capacity_steps: int = Field(1_000_000, ge=1, le=10**9, description="Steps to draw from: the last ones that were played.")
    learning_starts_steps: int = Field(
        5_000,
        ge=0,
        le=10**9,
        description="Environment steps before the first update. Their actions are drawn uniformly from the action space; a "
        "policy that was trained before plays as it is.",
    )
    updates_per_step: float = Field(1.0, gt=0, le=1_000, description="Updates for each environment step after those.")


class PlayConfig(Protocol):
    """What learning from play has to know: fields of `ExpertConfig` and `FineTuneConfig`."""

    @property
    def seed(self) -> int: ...
    @property
    def total_steps(self) -> int: ...
    @property
    def num_envs(self) -> int: ...
    @property
    def rollout_steps(self) -> int: ...
    @property
    def rollouts_per_iteration(self) -> int: ...
    @property
    def replay(self) -> ReplayConfig: ...
    @property
    def optimizer(self) -> AdamConfig: ...
    @property
    def evaluation(self) -> EvaluationsConfig: ...
    @property
    def keep(self) -> KeepConfig | None: ...
    @property
    def compute(self) -> TorchConfig: ...


def copies(config: PlayConfig) -> int:
    """Return the copies of the environment that are stepped together: no more than there are steps."""
    return min(config.num_envs, config.total_steps)


def a_replay_that_holds_a_batch(config: PlayConfig) -> None:
    """Check that a batch can be drawn.

    Raises:
        ValueError: It cannot.
    """
    capacity, batch_size = config.replay.capacity_steps, config.optimizer.batch_size
    if capacity < batch_size:
        raise ValueError(
            f"replay.capacity_steps is {capacity:,}, and a batch has {batch_size:,} steps: raise it, or lower "
            "optimizer.batch_size"
        )
