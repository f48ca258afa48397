"""What algorithms share that learn critics beside a policy."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium as gym
import torch
from torch import Tensor

from offline_core.data.episodes import columns
from offline_core.data.episodes.nested import Nested
from offline_core.errors import ConfigError
from offline_core.learning.algorithms.algorithm import Algorithm
from offline_core.learning.algorithms.algorithm_config import ActorCriticConfig
from offline_core.learning.algorithms.critics import Critics, observed
from offline_core.learning.algorithms.targets import move, target_of
from offline_core.learning.returns import N_STEP_DISCOUNTS, N_STEP_REWARDS, add_n_step_columns
from offline_core.learning.steps import Batch, BatchSpec, Steps
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy


class ActorCritic(Algorithm):
    """A policy, critics, and their targets, which follow after each update."""

    stored = (columns.OBS, columns.ACTIONS, columns.REWARDS, columns.TERMINATEDS)
    batch_columns: ClassVar[tuple[str, ...]] = (columns.OBS, columns.ACTIONS, columns.NEW_OBS, N_STEP_REWARDS, N_STEP_DISCOUNTS)
    needs_next_obs = True
    has_errors = True
    config: ActorCriticConfig
    has_value_function: ClassVar[bool] = False
    """It learns the value of an observation, too."""

    def build(self, observation_space: gym.Space[Any], action_space: gym.Space[Any], network: NetworkConfig, seed: int) -> None:
        self.policy = Policy(
            observation_space,
            action_space,
            self.policy_network(network, action_space),
            value_function=self.has_value_function,
            seed=seed,
        )
        self.critics = Critics(self.policy.encoder, action_space, network, self.config.critics, seed=seed)
        self.targets = target_of(self.critics)

    def policy_network(self, network: NetworkConfig, action_space: gym.Space[Any]) -> NetworkConfig:
        """Return the network of the policy: `network` with the action distribution that the algorithm needs.

        Raises:
            ConfigError: It needs another one, or cannot act in this space.
        """
        return network

    def prepare(self, steps: Steps, spec: BatchSpec) -> None:
        add_n_step_columns(steps, n=self.config.n_step, gamma=self.config.gamma)

    def target_values(self, observations: Nested, actions: Nested) -> Tensor:
        """Return the smallest value (B,) that a target critic gives the actions."""
        values: Tensor = self.targets(observed(self.policy, observations), actions).min(dim=0).values
        return values

    def after_update(self, means: dict[str, Tensor]) -> None:
        move(self.targets, self.critics, self.config.target_rate)


def td_targets(batch: Batch, following: Tensor) -> Tensor:
    """Return the targets (B,) of the critics, from the value (B,) of what follows: of bfloat16 none, for it rounds them."""
    targets: Tensor = torch.addcmul(batch[N_STEP_REWARDS], batch[N_STEP_DISCOUNTS], following.float())
    return targets


def box_only(algorithm: Algorithm, space: gym.Space[Any]) -> None:
    """Check that actions are a Box, with bounds.

    Raises:
        ConfigError: They are not.
    """
    if not isinstance(space, gym.spaces.Box):
        raise ConfigError(
            f"{type(algorithm).__name__} chooses continuous actions; it cannot act in {space}. Use bc, marwil, iql or cql."
        )
    if not space.is_bounded():
        raise ConfigError(f"{type(algorithm).__name__} needs actions with bounds, and {space} has none on one side.")
