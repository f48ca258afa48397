"""Parameters of training a policy from a dataset."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from offline_core.config import Config, EnvironmentSpec
from offline_core.policies.config import NetworkConfig


class OptimizerConfig(Config):
    """Adam and its batches."""

    learning_rate: float = Field(1e-3, ge=1e-8, le=10.0, description="Step size of Adam.")
    batch_size: int = Field(1024, ge=1, le=10_000_000, description="Steps per update.")
    max_epochs: int = Field(20, ge=1, le=1_000_000, description="Passes over all steps of the dataset, at most.")
    max_gradient_norm: float | None = Field(
        None, ge=0.0, title="Gradient norm", description="Clip the global gradient norm to this; None: do not clip."
    )


class EvaluationDuringTraining(Config):
    """Playing the policy while it trains, in an actor of its own."""

    interval_updates: int = Field(200, ge=1, description="Play after every so many updates.")
    episodes: int = Field(100, ge=1, le=100_000, description="Episodes each time, greedy.")
    target_return: float | None = Field(
        None,
        title="Target return",
        description="Stop at this mean return. None: the environment's own threshold, if it has one.",
    )


class ComputeConfig(Config):
    """Who does what, and where the data waits."""

    prelearners: int = Field(1, ge=1, le=10_000, description="Actors that turn stored rows into batches.")
    cpus_per_prelearner: float = Field(1.0, gt=0, le=128, description="CPUs that Ray reserves for each.")
    rows_per_read_batch: int = Field(
        64, ge=1, description="Rows (episodes, or thousands of steps of a table) a prelearner takes at a time."
    )
    resident_bytes: int | None = Field(
        None,
        ge=0,
        title="Resident bytes",
        description="Keep the dataset in memory up to this size, beyond it stream. None: up to the size of Ray's object store.",
    )
    shuffle_window_steps: int = Field(
        262_144, ge=1, description="When streaming: steps among which each batch is drawn at random."
    )
    torch_threads: int = Field(1, ge=1, le=1024, description="Threads of the local learner; small networks want one.")


class TrainingConfig(Config):
    """How a policy is learned from a dataset."""

    algorithm: Literal["bc"] = Field("bc", description="bc: behaviour cloning, the recorded actions are the truth.")
    seed: int = Field(0, ge=0, le=2**31 - 1, description="Same seed and dataset: same policy.")
    network: NetworkConfig = Field(NetworkConfig(), title="Network", description="Layers of the policy.")
    optimizer: OptimizerConfig = Field(OptimizerConfig(), title="Optimizer", description="Adam and its batches.")
    evaluation: EvaluationDuringTraining = Field(
        EvaluationDuringTraining(), title="Evaluation", description="Playing the policy while it trains."
    )
    compute: ComputeConfig = Field(ComputeConfig(), title="Compute", description="Who does what, and where the data waits.")
    environment: EnvironmentSpec | None = Field(
        None, title="Environment", description="Where to evaluate; None: where the dataset was recorded, if it says so."
    )
