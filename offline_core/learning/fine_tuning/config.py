"""Parameters of going on by play from what was learned from recordings."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, model_validator

from offline_core.learning.trainer_config import (
    AdamConfig,
    BatchSize,
    Episodes,
    EvaluationsConfig,
    LearningRate,
    ReplayConfig,
    TorchConfig,
    a_replay_that_holds_a_batch,
)
from offline_core.runtime.config import Config, EnvironmentSpec, closed


class FineTuneReplay(ReplayConfig):
    """Which played steps are learned from, beside the recorded ones, and how often."""

    learning_starts_steps: int = Field(
        250,
        ge=0,
        le=10**9,
        description="Environment steps before the first update, in which the policy plays as it is; recorded steps are there.",
    )


class FineTuneOptimizer(AdamConfig):
    """Adam and its batches, of recorded and of played steps."""

    learning_rate: LearningRate = 3e-4
    batch_size: BatchSize = Field(256, description="Steps per update.")


class FineTuneEvaluations(EvaluationsConfig):
    """Playing the policy while it learns."""

    episodes: Episodes = 10
    target_return: float | None = Field(None, description="Stop at this mean return. None: play all steps.")


class FineTuneConfig(Config):
    """Where the policy plays, how it learns from that, and when it is good enough."""

    rollout_steps: ClassVar[int] = 1

    environment: EnvironmentSpec | None = Field(
        None, description="Where to play. None: where the training played, or the dataset was recorded."
    )
    offline_share: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Share of each batch that is drawn from the dataset, the rest from play.",
    )
    roll_back_after: int | None = Field(
        5,
        ge=1,
        description="So many evaluations in a row below that of the first policy, after which the best networks so far come "
        "back. None: they never do; the best policy is stored all the same.",
    )
    seed: int = Field(0, ge=0, le=2**31 - 1, description="Of start states, actions and batches.")
    total_steps: int = Field(100_000, ge=1, le=10**12, description="Environment steps, at most.")
    num_envs: int = Field(4, ge=1, le=65_536, description="Copies of the environment that are stepped together.")
    rollouts_per_iteration: int = Field(
        1_250,
        ge=1,
        le=1_000_000,
        description="After so many steps of each copy: report, evaluate, and write a checkpoint to go on from.",
    )
    replay: FineTuneReplay = Field(FineTuneReplay(), description="Which played steps are learned from, and how often.")
    optimizer: FineTuneOptimizer = Field(FineTuneOptimizer(), description="Adam and its batches.")
    evaluation: FineTuneEvaluations = Field(
        FineTuneEvaluations(), description="How good the policy is while it learns.", json_schema_extra=closed
    )
    compute: TorchConfig = Field(TorchConfig(), description="How Torch computes.", json_schema_extra=closed)

    @model_validator(mode="after")
    def _holds_a_batch(self) -> FineTuneConfig:
        a_replay_that_holds_a_batch(self)
        return self
