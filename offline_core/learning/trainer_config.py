"""Parameters of the trainer, wherever the steps are from: optimiser, evaluations, what is kept, how Torch computes, play."""

from __future__ import annotations

import math
from typing import Annotated, Literal, Protocol

from pydantic import Field, model_validator

from offline_core.data.environments.vector_env import NUM_ENVS, reward_threshold
from offline_core.runtime.config import Config, EnvironmentSpec

Schedule = Literal["constant", "linear", "cosine"]
DEFAULT_EPOCHS, LEAST_UPDATES = 20, 2_000
"""A training has the more of both: 20 passes over 3,000 steps are 60 updates, after which no network has learned much."""


class NetworkRate(Config):
    """How fast one network learns."""

    learning_rate: float | None = Field(None, ge=1e-8, le=10.0, description="Step size. None: that of all networks.")
    schedule: Schedule | None = Field(None, description="How the learning rate falls. None: as that of all networks.")


LearningRate = Annotated[float, Field(ge=1e-8, le=10.0, description="Step size of Adam.")]
BatchSize = Annotated[int, Field(ge=1, le=10_000_000)]
MaxGradientNorm = Annotated[
    float | None, Field(gt=0.0, description="Clip the global gradient norm to this; None: do not clip.")
]
Episodes = Annotated[int, Field(ge=1, le=100_000, description="Episodes each time.")]


class AdamConfig(Config):
    """Adam and its batches, wherever the steps are from."""

    learning_rate: LearningRate = 1e-3
    schedule: Schedule = Field(
        "constant", description="How the learning rate falls from its value to zero over the training; constant: it does not."
    )
    networks: dict[str, NetworkRate] = Field(
        {},
        description='Rates of single networks, as JSON: {"policy": {"learning_rate": 1e-4, "schedule": "cosine"}}. Others are '
        "value, critics and log_temperature, as far as the algorithm has them.",
    )
    warmup_updates: int = Field(0, ge=0, description="Updates over which the learning rate rises from zero.")
    batch_size: BatchSize = Field(1024, description="Steps per update, over all learners.")
    max_gradient_norm: MaxGradientNorm = None


class OptimizerConfig(AdamConfig):
    """Adam and its batches, and how long to learn."""

    max_epochs: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description=f"Passes over all steps of the dataset, at most. None: {DEFAULT_EPOCHS}, or of a small dataset as many as "
        f"make {LEAST_UPDATES:,} updates, unless epochs are what is reported (updates_per_iteration: None).",
    )
    max_updates: int | None = Field(
        None,
        ge=1,
        le=10**9,
        description="Updates, at most; max_epochs does not count then. None: max_epochs passes.",
    )
    updates_per_iteration: int | None = Field(
        200,
        ge=1,
        description="After so many updates: report, evaluate, and write a checkpoint to go on from. None: after each epoch.",
    )
    updates_per_record: int | None = Field(
        None,
        ge=1,
        description="The loss and other metrics are means over so many updates, and are written at the end of each iteration. "
        "None: about 300 records in a training, and one an iteration at least.",
    )
    replacement: bool = Field(
        False,
        description="Draw the steps of each batch at random with replacement, as a replay buffer does. Otherwise an epoch has "
        "each step once.",
    )

    def epochs(self, epoch_steps: int) -> int:
        """Return the passes over data of which each has `epoch_steps` steps, at most, where max_updates does not count."""
        if self.max_epochs is not None:
            return self.max_epochs
        if self.updates_per_iteration is None:
            return DEFAULT_EPOCHS
        return max(DEFAULT_EPOCHS, math.ceil(LEAST_UPDATES / max(1, math.ceil(epoch_steps / self.batch_size))))


class KeepConfig(Config):
    """Which policies stay in iterations/<updates>, of those at the ends of iterations."""

    every_iterations: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="Keep the policy of every so many iterations. None: of each one if last is set, else of none.",
    )
    last: int | None = Field(None, ge=1, le=1_000_000, description="Of those, only the latest so many stay. None: all of them.")
    best: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="So many of the best policies stay as well: by mean return, or by held-out loss where the policy is not "
        "played and losses compare. None: no more.",
    )

    @model_validator(mode="after")
    def _keeps_something(self) -> KeepConfig:
        if (self.every_iterations, self.last, self.best) == (None, None, None):
            raise ValueError("it keeps nothing: set every_iterations, last or best, or leave keep out")
        return self

    @property
    def interval(self) -> int | None:
        """Iterations from one policy to the next; None: only the best are kept."""
        return 1 if self.every_iterations is None and self.last is not None else self.every_iterations


class EvaluationsConfig(Config):
    """Playing the policy while it learns."""

    episodes: Episodes = 100
    num_envs: int = Field(
        NUM_ENVS,
        ge=1,
        le=65_536,
        description="Copies of the environment that are played at once, at most. Another number plays other episodes.",
    )
    actions: Literal["greedy", "sampled"] = Field(
        "greedy",
        description="greedy: the most likely actions. sampled: drawn, as recordings do by default, so that target_return is "
        "met by what is recorded, and best is the best at that.",
    )
    interval_iterations: int = Field(
        1,
        ge=1,
        le=1_000_000,
        description="Iterations between two evaluations, the held-out loss included; each iteration writes a checkpoint.",
    )
    target_return: float | None = Field(
        None,
        description="Stop at this mean return. None: the environment's own threshold, if it has one.",
    )
    patience: int | None = Field(
        None,
        ge=1,
        description="Stop when the mean return has not become better in so many evaluations; if it is not played, the held-out "
        "loss, of an algorithm whose loss can be compared over time (bc). None: go on to the end.",
    )

    def target_in(self, environment: EnvironmentSpec | None) -> float | None:
        """Return the mean return to stop at in an environment; None: there is none, or the policy is not played."""
        if environment is None or self.target_return is not None:
            return self.target_return
        return reward_threshold(environment)


class TorchConfig(Config):
    """How Torch computes."""

    threads: int = Field(1, ge=1, le=1024, description="Of Torch, for each learner; small networks want one.")
    bfloat16: bool = Field(
        False,
        description="On a GPU, compute in bfloat16 where Torch's autocast does. On a CPU, round what enters matrix products to "
        "it: with AMX they take a half to a fifth of the time.",
    )
    compile: bool | Literal["auto"] = Field(
        "auto",
        description="Make one graph of an update's loss and gradients, compiled by Torch's inductor: it takes up to a minute, "
        "less the next time, and results differ in their last bits. auto: in trainings of 10,000 updates and more by one "
        "learner, on a GPU of 100,000, if a graph and a C++ compiler are there. Unless it is false, a GPU replays updates that "
        "were recorded once (CUDA graphs), with the same bits.",
    )


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
