"""Parameters of learning from a replay buffer."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from offline_core.runtime.config import Config
from offline_core.runtime.user_code import UserCode


class ReplayBufferConfig(Config):
    """Batches are drawn from the episodes that were read last, and not from each step once an epoch."""

    capacity_steps: int = Field(
        100_000,
        ge=1,
        le=10**9,
        description="Steps that the buffer holds, in whole episodes: the oldest leave first. At least one batch, or less "
        "with optimizer.replacement.",
    )
    read_episodes: int = Field(32, ge=1, le=10_000_000, description="Episodes that come into the buffer at once.")
    batches_per_read: int = Field(1, ge=1, le=1_000_000, description="Batches that are drawn before the next episodes come in.")
    sampling: Literal["uniform", "prioritized"] = Field(
        "uniform",
        description="uniform: every step is as likely as any other. prioritized: by the error that the algorithm had in it "
        "(Schaul et al. 2016); not for bc.",
    )
    priority_exponent: float = Field(
        0.6, ge=0, le=10, description="prioritized only: chances are errors to this power; 0 is uniform."
    )
    importance_exponent: float = Field(
        0.4,
        ge=0,
        le=1,
        description="prioritized only: how far the weights of losses undo unequal chances; 1: wholly.",
    )
    buffer_class: UserCode | None = Field(
        None,
        description="Your own subclass of offline_core.learning.replay.buffer.ReplayBuffer, which chooses what stays and what "
        "is drawn.",
    )

    @model_validator(mode="after")
    def _one_way_to_draw(self) -> ReplayBufferConfig:
        if self.buffer_class is not None and self.sampling != "uniform":
            raise ValueError("a buffer class of your own draws by itself: leave sampling at uniform")
        return self
