"""Parameters of the training of an expert."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from offline_core.data.datasets.data_file import FilesConfig
from offline_core.data.episodes.codecs import Format
from offline_core.data.store.allowed_roots import IS_URI
from offline_core.learning.algorithms.ppo import PPO
from offline_core.learning.algorithms.registry import AlgorithmSections, section
from offline_core.learning.algorithms.sac import SAC
from offline_core.learning.algorithms.td3 import TD3
from offline_core.learning.presets import EXPERT_PRESETS, listed, with_expert_defaults
from offline_core.learning.trainer_config import (
    AdamConfig,
    BatchSize,
    EvaluationsConfig,
    LearningRate,
    MaxGradientNorm,
    ReplayConfig,
    TorchConfig,
    a_replay_that_holds_a_batch,
)
from offline_core.policies.config import NetworkConfig
from offline_core.runtime.config import Config, EnvironmentSpec, closed


class ExpertOptimizer(AdamConfig):
    """Adam and its batches: of ppo parts of a rollout, of sac and td3 drawn from what was played."""

    learning_rate: LearningRate = 2e-3
    batch_size: BatchSize = Field(512, description="Steps per update, of ppo at most: rollouts are cut into equal parts.")
    max_gradient_norm: MaxGradientNorm = 0.5


class ExpertRecording(Config):
    """Records episodes of the policy while it learns: a dataset from beginner to expert."""

    replay: bool = Field(
        False,
        description="Record what the expert plays itself and learns from, each step once, in place of other episodes: "
        "every_rollouts and episodes have no effect then. Without probabilities of actions.",
    )
    every_rollouts: int = Field(10, ge=1, le=1_000_000, description="Rollouts between two recordings.")
    episodes: int = Field(
        16, ge=1, le=1_000_000, description="Complete episodes each time, with exploration; PPO does not learn from them."
    )
    format: Format = Field("episodes", description="episodes: one row an episode. table: one row a step.")
    files: FilesConfig = Field(FilesConfig(), description="Size and compression of the data files.", json_schema_extra=closed)


class ExpertConfig(AlgorithmSections):
    """The environment of the expert, how it learns, and when it is good enough."""

    algorithm: Literal["ppo", "sac", "td3"] = Field(
        "ppo",
        description="ppo: learns from each rollout, then forgets it; any actions. sac, td3: learn from all that they played, "
        "with far fewer steps and more time for each; continuous actions with bounds. They have other defaults: 4 copies that "
        "take 1 step a rollout, two hidden layers of 256 units with ReLU, batches of 256 steps, iterations of 2,500 rollouts, "
        "and evaluations of 10 episodes.",
    )
    preset: Annotated[str, Field(json_schema_extra=listed(EXPERT_PRESETS))] | None = Field(
        None,
        exclude=True,
        description="Settings of reference code, below those that are given here. mujoco: of CleanRL and Stable-Baselines3 for "
        "locomotion, with each algorithm. None: the defaults.",
    )
    environment: EnvironmentSpec = Field(EnvironmentSpec(), description="Where the expert learns and is evaluated.")
    network: NetworkConfig = Field(
        NetworkConfig(),
        description="The layers of the policy and of its value function; initial_policy brings its own.",
        json_schema_extra=closed,
    )
    initial_policy: Annotated[str | None, IS_URI] = Field(
        None,
        description="Checkpoint to start from, such as a clone (runs/policy/best). None: random weights.",
    )
    ppo: PPO = section(PPO)
    sac: SAC = section(SAC)
    td3: TD3 = section(TD3)
    replay: ReplayConfig = Field(
        ReplayConfig(),
        description="Which played steps sac and td3 learn from, and how often.",
        json_schema_extra=closed,
    )
    optimizer: ExpertOptimizer = Field(ExpertOptimizer(), description="Adam and its batches.", json_schema_extra=closed)
    seed: int = Field(0, ge=0, le=2**31 - 1, description="Same parameters and seed: same expert, to the bit.")
    total_steps: int = Field(
        500_000,
        ge=1,
        le=10**12,
        description="Environment steps to learn from, at most; the last rollout is shorter. Fewer than num_envs may be left.",
    )
    num_envs: int = Field(64, ge=1, le=65_536, description="Copies of the environment that are stepped together.")
    rollout_steps: int = Field(64, ge=1, le=1_000_000, description="Steps of each copy between two updates of the policy.")
    rollouts_per_iteration: int = Field(
        2,
        ge=1,
        le=1_000_000,
        description="After so many rollouts: report, evaluate, and write a checkpoint to go on from.",
    )
    evaluation: EvaluationsConfig = Field(
        EvaluationsConfig(), description="How good the policy is while it learns.", json_schema_extra=closed
    )
    recording: ExpertRecording | None = Field(
        None,
        description="Record the policy while it learns, as a dataset in the folder recording below the output. None: do not.",
    )
    snapshots_at_returns: list[float] = Field(
        [],
        description="Leave the first policy whose mean return reaches a number in the folder snapshots/<number>.",
    )
    compute: TorchConfig = Field(TorchConfig(), description="How Torch computes.", json_schema_extra=closed)

    @model_validator(mode="before")
    @classmethod
    def _of_the_algorithm(cls, values: Any) -> Any:
        """Put the values of the preset and of the algorithm under what is given."""
        return with_expert_defaults(values, cls) if isinstance(values, dict) else values

    @model_validator(mode="after")
    def _has_advantages_to_compare(self) -> ExpertConfig:
        if self.algorithm == "ppo" and self.rollout_steps < 2:
            raise ValueError("ppo compares the steps of a rollout: set rollout_steps to 2 at least")
        return self

    @model_validator(mode="after")
    def _holds_a_batch(self) -> ExpertConfig:
        if self.algorithm != "ppo":
            a_replay_that_holds_a_batch(self)
        return self

    @property
    def unused(self) -> set[str]:
        return super().unused | ({"replay"} if self.algorithm == "ppo" else set())
