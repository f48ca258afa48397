"""Parameters of the training of an expert."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from offline_core.data.datasets.data_file import FilesConfig
from offline_core.data.datasets.manifest import Format
from offline_core.data.store.allowed_roots import IS_URI
from offline_core.learning.algorithms.sac import SAC
from offline_core.learning.algorithms.td3 import TD3
from offline_core.learning.experts.presets import PRESETS, with_defaults
from offline_core.learning.online.config import OnlineConfig
from offline_core.learning.optimizer_config import Schedule
from offline_core.policies.config import NetworkConfig
from offline_core.runtime.config import Config, EnvironmentSpec, closed, closed_by_name


class PPOConfig(Config):
    """How PPO learns from one rollout (Schulman et al. 2017, "Proximal Policy Optimization Algorithms")."""

    learning_rate: float = Field(2e-3, ge=1e-8, le=1, description="Step size of Adam.")
    schedule: Schedule = Field(
        "constant", description="How the learning rate falls from its value to zero over total_steps; constant: it does not."
    )
    num_epochs: int = Field(10, ge=1, le=1_000, description="How often each step of a rollout is learned from.")
    minibatch_size: int = Field(
        512, ge=1, le=10_000_000, description="Steps a gradient is averaged over, at most: rollouts are cut into equal parts."
    )
    gamma: float = Field(0.99, ge=0, le=1, description="Discount of the rewards, per step.")
    gae_lambda: float = Field(0.95, ge=0, le=1, description="Advantages: 0 trusts the value function, 1 the rewards that came.")
    clip_range: float = Field(
        0.2, ge=1e-4, le=10, description="A step's probability is pushed up or down by this share at most."
    )
    entropy_coefficient: float = Field(0.0, ge=0, le=100, description="Weight of the bonus for acting at random.")
    value_coefficient: float = Field(
        0.01,
        ge=0,
        le=100,
        description="Weight of the value function's loss. Small, or its gradients alone use up max_gradient_norm.",
    )
    value_clip_range: float | None = Field(
        None,
        gt=0,
        le=1e8,
        description="A value's gain from moving further than this in an update does not count. None: it does.",
    )
    normalize_rewards: bool = Field(
        False,
        description="Learn from rewards divided by the standard deviation of the returns so far; recordings keep the rewards.",
    )
    max_gradient_norm: float = Field(0.5, ge=1e-8, le=1e8, description="Longer gradients are scaled down to this length.")


class ExpertRecording(Config):
    """Records episodes of the policy while it learns: a dataset from beginner to expert."""

    replay: bool = Field(
        False,
        description="Record what the expert plays itself and learns from, each step once, in place of other episodes: every "
        "and episodes have no effect then. Without probabilities of actions.",
    )
    every_rollouts: int = Field(10, ge=1, le=1_000_000, description="Rollouts between two recordings.")
    episodes: int = Field(
        16, ge=1, le=1_000_000, description="Complete episodes each time, with exploration; PPO does not learn from them."
    )
    format: Format = Field("episodes", description="episodes: one row an episode. table: one row a step.")
    files: FilesConfig = Field(FilesConfig(), description="Size and compression of the data files.", json_schema_extra=closed)


def _list_presets(schema: dict[str, Any]) -> None:
    schema["enum"] = sorted({name for of_one in PRESETS.values() for name in of_one})


class ExpertConfig(Config):
    """The environment of the expert, how it learns, and when it is good enough."""

    algorithm: Literal["ppo", "sac", "td3"] = Field(
        "ppo",
        description="ppo: learns from each rollout, then forgets it; any actions. sac, td3: learn from all that they played, "
        "with far fewer steps and more time for each; continuous actions with bounds. They have other defaults: 4 copies that "
        "take 1 step a rollout, two hidden layers of 256 units with ReLU, 10 episodes every 2,500 rollouts.",
    )
    preset: Annotated[str, Field(json_schema_extra=_list_presets)] | None = Field(
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
    ppo: PPOConfig = Field(PPOConfig(), description="How ppo learns from a rollout.", json_schema_extra=closed)
    sac: SAC = Field(SAC(), description="Used if it is the algorithm.", json_schema_extra=closed_by_name)
    td3: TD3 = Field(TD3(), description="Used if it is the algorithm.", json_schema_extra=closed_by_name)
    off_policy: OnlineConfig = Field(
        OnlineConfig(),
        description="How sac and td3 learn from what they play.",
        json_schema_extra=closed,
    )
    seed: int = Field(0, ge=0, le=2**31 - 1, description="Same parameters and seed: same expert, to the bit.")
    total_steps: int = Field(
        500_000,
        ge=1,
        le=10**12,
        description="Environment steps to learn from, at most; the last rollout is shorter. Fewer than num_envs may be left.",
    )
    target_return: float | None = Field(
        None,
        description="Stop at this mean return of an evaluation. None: the environment's own threshold, if it has one.",
    )
    num_envs: int = Field(64, ge=1, le=65_536, description="Copies of the environment that are stepped together.")
    rollout_steps: int = Field(64, ge=1, le=1_000_000, description="Steps of each copy between two updates of the policy.")
    recording: ExpertRecording | None = Field(
        None,
        description="Record the policy while it learns, as a dataset in the folder recording below the output. None: do not.",
    )
    snapshots_at_returns: list[float] = Field(
        [],
        description="Leave the first policy whose mean return reaches a number in the folder snapshots/<number>.",
    )
    evaluation_interval: int = Field(2, ge=1, le=1_000_000, description="Rollouts between two evaluations.")
    evaluation_episodes: int = Field(100, ge=1, le=1_000_000, description="Episodes of an evaluation.")
    evaluation_actions: Literal["greedy", "sampled"] = Field(
        "greedy",
        description="greedy: evaluations always take the most likely action. sampled: they draw actions, as recordings do by "
        "default, so that target_return is met by what is recorded, and best is the best at that.",
    )
    torch_threads: int = Field(1, ge=1, le=1024, description="Threads that Torch computes with; small networks want one.")

    @model_validator(mode="before")
    @classmethod
    def _of_the_algorithm(cls, values: Any) -> Any:
        """Put the values of the preset and of the algorithm under what is given."""
        return with_defaults(values, cls) if isinstance(values, dict) else values

    @model_validator(mode="after")
    def _has_advantages_to_compare(self) -> ExpertConfig:
        if self.algorithm == "ppo" and self.rollout_steps < 2:
            raise ValueError("ppo compares the steps of a rollout: set rollout_steps to 2 at least")
        return self

    @property
    def copies(self) -> int:
        """Copies of the environment that are stepped together: no more than there are steps."""
        return min(self.num_envs, self.total_steps)

    @property
    def unused(self) -> set[str]:
        """Sections that the algorithm does not read."""
        return {"sac", "td3", "off_policy"} if self.algorithm == "ppo" else {"ppo", "sac", "td3"} - {self.algorithm}
