"""What algorithms share that learn critics beside a policy, and target networks, which later values are taken from."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

import gymnasium as gym
from pydantic import Field

from offline_core.data.episodes import columns
from offline_core.errors import ConfigError
from offline_core.learning.algorithms.algorithm import Algorithm, Gamma
from offline_core.learning.returns import N_STEP_DISCOUNTS, N_STEP_REWARDS, add_n_step_columns
from offline_core.policies.config import NetworkConfig, Size
from offline_core.runtime.config import Config
from offline_core.runtime.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor, nn

    from offline_core.data.environments.vector_env import Spaces
    from offline_core.data.episodes.nested import Nested
    from offline_core.learning.algorithms.networks import Networks
    from offline_core.learning.steps import Batch, BatchSpec, Steps
    from offline_core.policies.policy import Policy

AnyModule = TypeVar("AnyModule", bound="nn.Module")


class CriticConfig(Config):
    """Networks that value an action: observation and action enter together at the first layer."""

    number: int = Field(2, ge=1, le=100, description="Critics that differ in their first weights; the smallest value counts.")
    hidden_sizes: list[Size] | None = Field(
        None, max_length=10, description="Units of each hidden layer. None: those of the policy."
    )
    layer_norm: bool = Field(False, description="Normalise each hidden layer's output over its units.")


class ActorCritic(Algorithm):
    """A policy, critics, and their targets, which follow after each update."""

    gamma: Gamma = 0.99
    n_step: int = Field(
        1,
        ge=1,
        le=1_000,
        description="Rewards that are summed before the targets estimate the rest: 1 in the papers. With more, actions are "
        "valued by what the behaviour policy did after them.",
    )
    target_rate: float = Field(
        0.005, gt=0, le=1, description="How far an update moves the target networks to the learned ones."
    )
    critics: CriticConfig = Field(CriticConfig(), description="The networks that value actions.")

    stored: ClassVar[tuple[str, ...]] = (columns.OBS, columns.ACTIONS, columns.REWARDS, columns.TERMINATEDS)
    batch_columns: ClassVar[tuple[str, ...]] = (
        columns.OBS, columns.ACTIONS, columns.NEW_OBS, N_STEP_REWARDS, N_STEP_DISCOUNTS,
    )  # fmt: skip
    needs_next_obs: ClassVar[bool] = True
    has_errors: ClassVar[bool] = True
    records_after_update: ClassVar[bool] = True

    def build(self, networks: Networks, spaces: Spaces, network: NetworkConfig, seed: int) -> None:
        from offline_core.learning.algorithms.critics import Critics

        super().build(networks, spaces, network, seed)
        networks.critics = Critics(networks.policy.encoder, spaces[1], network, **dict(self.critics), seed=seed)
        networks.targets = target_of(networks.critics)

    def prepare(self, networks: Networks, steps: Steps, spec: BatchSpec) -> None:
        add_n_step_columns(steps, n=self.n_step, gamma=self.gamma)

    def after_update(self, networks: Networks, means: dict[str, Tensor]) -> None:
        move(networks.targets, networks.critics, self.target_rate)


def observed(policy: Policy, observations: Nested) -> Tensor:
    """Return observations (B, …) as the policy's encoder encodes them, without a gradient from the critics."""
    return policy.encode(observations).detach()


def target_values(networks: Networks, observations: Nested, actions: Nested) -> Tensor:
    """Return the smallest value (B,) that a target critic gives the actions."""
    values: Tensor = networks.targets(observed(networks.policy, observations), actions).min(dim=0).values
    return values


def td_targets(batch: Batch, following: Tensor) -> Tensor:
    """Return the targets (B,) of the critics, from the value (B,) of what follows: of bfloat16 none, for it rounds them."""
    targets: Tensor = torch.addcmul(batch[N_STEP_REWARDS], batch[N_STEP_DISCOUNTS], following.float())
    return targets


def target_of(learned: AnyModule) -> AnyModule:
    """Return a slow copy that is not trained (Lillicrap et al. 2016, arXiv 1509.02971).

    A policy's shares the encoder, so that both see observations through one filter.
    """
    encoder = getattr(learned, "encoder", None)
    target = copy.deepcopy(learned, cast(dict[int, Any], {} if encoder is None else {id(encoder): encoder}))
    return target.requires_grad_(False).eval()


def move(target: nn.Module, learned: nn.Module, rate: float) -> None:
    """Move a target this share of the way to the learned network."""
    with torch.no_grad():
        torch._foreach_lerp_(list(target.parameters()), list(learned.parameters()), rate)


def box_only(algorithm: Algorithm, space: gym.Space[Any]) -> None:
    """Check that actions are a Box, with bounds.

    Raises:
        ConfigError: They are not.
    """
    if not isinstance(space, gym.spaces.Box):
        fitting = "bc, marwil, awac, iql, cql, bcq, dqn" if isinstance(space, gym.spaces.Discrete) else "bc, marwil, awac, iql"
        raise ConfigError(
            f"{type(algorithm).__name__} chooses continuous actions; it cannot act in {space}. Use one of {fitting}, or ppo to "
            "learn from play."
        )
    if not space.is_bounded():
        raise ConfigError(without_bounds(type(algorithm).__name__, space))


def without_bounds(name: str, space: gym.Space[Any]) -> str:
    """Return what is wrong with a Box without bounds for an algorithm that needs them, and where they are declared."""
    shape = list(space.shape or ())
    return (
        f"{name} needs actions with bounds, and {space} has none on one side. Those of a log are declared at its import: "
        f"-s 'action_space={{space: box, low: 0, high: 100, shape: {shape}}}', say; 'offline outliers' proposes them."
    )
