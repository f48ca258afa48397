"""Parameters of the training of an expert."""

from __future__ import annotations

from pydantic import Field

from offline_core.datasets.data_file import FilesConfig
from offline_core.datasets.manifest import Format
from offline_core.policies.config import NetworkConfig
from offline_core.runtime.config import Config, EnvironmentSpec


class PPOConfig(Config):
    """How PPO learns from one rollout (Schulman et al. 2017, "Proximal Policy Optimization Algorithms")."""

    learning_rate: float = Field(2e-3, ge=1e-8, le=1, description="Step size of Adam.")
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
    max_gradient_norm: float = Field(0.5, ge=1e-8, le=1e8, description="Longer gradients are scaled down to this length.")


class ExpertRecording(Config):
    """Records episodes of the policy while it learns: a dataset from beginner to expert."""

    every_rollouts: int = Field(10, ge=1, le=1_000_000, title="Every", description="Rollouts between two recordings.")
    episodes: int = Field(
        16, ge=1, le=1_000_000, description="Complete episodes each time, with exploration; PPO does not learn from them."
    )
    format: Format = Field("episodes", description="episodes: one row an episode. table: one row a step.")
    files: FilesConfig = Field(FilesConfig(), title="Files", description="Size and compression of the data files.")


class ExpertConfig(Config):
    """The environment of the expert, how it learns, and when it is good enough."""

    environment: EnvironmentSpec = Field(
        EnvironmentSpec(), title="Environment", description="Where the expert learns and is evaluated."
    )
    network: NetworkConfig = Field(
        NetworkConfig(),
        title="Network",
        description="The layers of the policy and of its value function; initial_policy brings its own.",
    )
    initial_policy: str | None = Field(
        None,
        title="Initial policy",
        description="Checkpoint to start from, such as a clone (runs/policy/best). None: random weights.",
    )
    ppo: PPOConfig = Field(PPOConfig(), title="PPO", description="How the policy learns from a rollout.")
    seed: int = Field(0, ge=0, le=2**31 - 1, description="Same parameters and seed: same expert, to the bit.")
    total_steps: int = Field(
        500_000,
        ge=1,
        le=10**12,
        description="Environment steps to learn from, at most; the last rollout is shorter. Fewer than num_envs may be left.",
    )
    target_return: float | None = Field(
        None,
        title="Target return",
        description="Stop at this mean greedy return. None: the environment's own threshold, if it has one.",
    )
    num_envs: int = Field(64, ge=1, le=65_536, description="Copies of the environment that are stepped together.")
    rollout_steps: int = Field(64, ge=2, le=1_000_000, description="Steps of each copy between two updates of the policy.")
    recording: ExpertRecording | None = Field(
        None,
        exclude_if=lambda recording: recording is None,
        title="Recording",
        description="Record the policy while it learns, as a dataset in the folder recording below the output. None: do not.",
    )
    evaluation_interval: int = Field(2, ge=1, le=1_000_000, description="Rollouts between two evaluations.")
    evaluation_episodes: int = Field(100, ge=1, le=1_000_000, description="Greedy episodes of an evaluation.")
    torch_threads: int = Field(1, ge=1, le=1024, description="Threads that Torch computes with; small networks want one.")
