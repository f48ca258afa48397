"""Implicit Q-learning (Kostrikov et al. 2021, "Offline Reinforcement Learning with Implicit Q-Learning")."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor

from offline_core.episodes import columns
from offline_core.learning.algorithms.algorithm import Algorithm, LossOutput
from offline_core.learning.algorithms.critics import Critics, observed
from offline_core.learning.algorithms.iql_config import IQLConfig
from offline_core.learning.algorithms.weights import advantage_weights, weight_metrics
from offline_core.learning.steps import Batch
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy


class IQL(Algorithm):
    """Learns the value of the better actions of the data, without evaluating others, and clones those.

    Three losses, each of which trains its own networks: the value function is an upper expectile of the target critics,
    the critics are one reward and the next value, the policy clones with the weight exp(β · (Q - V)). Only with
    `network.share_layers`, policy and value function both train the shared layers.
    """

    stored = (columns.OBS, columns.ACTIONS, columns.REWARDS, columns.TERMINATEDS)
    batch_columns = (*stored, columns.NEW_OBS)
    needs_next_obs = True
    has_errors = True
    config_class = IQLConfig
    config: IQLConfig

    def build(self, observation_space: gym.Space[Any], action_space: gym.Space[Any], network: NetworkConfig, seed: int) -> None:
        self.policy = Policy(observation_space, action_space, network, value_function=True, seed=seed)
        self.critics = Critics(self.policy.encoder, action_space, network, seed=seed)
        self.targets = copy.deepcopy(self.critics).requires_grad_(False)

    def forward(self, batch: Batch) -> LossOutput:
        actions = batch[columns.ACTIONS]
        inputs, values = (output.float() for output in self.policy.inputs_and_values(batch[columns.OBS]))
        with torch.no_grad():
            encoded = observed(self.policy, batch[columns.OBS])
            q = self.targets(encoded, actions).min(dim=0).values
            following = self.policy.values(batch[columns.NEW_OBS]).float() * ~batch[columns.TERMINATEDS]
            targets = batch[columns.REWARDS].float() + self.config.gamma * following
        advantages = q - values
        value_loss = expectile_loss(advantages, self.config.expectile)
        errors = self.critics(encoded, actions) - targets
        critic_loss = errors.square().sum(dim=0)
        weights, metrics = advantage_weights(self.config.beta * advantages, self.config.max_weight)
        policy_loss = -weights * self.policy.head.log_prob(inputs, actions)
        metrics |= {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "critic_loss": critic_loss,
            "entropy": self.policy.head.entropy(inputs),
            "value": values,
            "q": q,
            "q_min": q,
            "q_max": q,
            "advantage": advantages,
        }
        return LossOutput(
            policy_loss + value_loss + critic_loss,
            {name: term.detach() for name, term in metrics.items()},
            errors.detach().abs().mean(dim=0),
        )

    def after_update(self, means: dict[str, Tensor]) -> None:
        self.targets.move_to(self.critics, self.config.target_rate)

    def log_metrics(self, means: dict[str, float]) -> dict[str, float]:
        return weight_metrics(means)


def expectile_loss(errors: Tensor, expectile: float) -> Tensor:
    """|τ - 1(u < 0)| · u²: underestimates (u > 0) count τ, overestimates 1 - τ (Newey & Powell 1987); elementwise."""
    return torch.where(errors < 0, 1 - expectile, expectile) * errors.square()
