"""Implicit Q-learning (Kostrikov et al. 2021, "Offline Reinforcement Learning with Implicit Q-Learning")."""

from __future__ import annotations

import torch
from torch import Tensor

from offline_core.data.episodes import columns
from offline_core.learning.algorithms.actor_critic import ActorCritic, td_targets
from offline_core.learning.algorithms.algorithm import LossOutput
from offline_core.learning.algorithms.critics import observed
from offline_core.learning.algorithms.iql_config import IQLConfig
from offline_core.learning.algorithms.weights import advantage_weights, weight_metrics
from offline_core.learning.steps import Batch


class IQL(ActorCritic):
    """Learns the value of the better actions of the data, without evaluating others, and clones those.

    Three losses, each of which trains its own networks: the value function is an upper expectile of the target critics,
    the critics are one reward and the next value, the policy clones with the weight exp(β · (Q - V)). Only with
    `network.share_layers`, policy and value function both train the shared layers.
    """

    config_class = IQLConfig
    config: IQLConfig
    has_value_function = True

    def forward(self, batch: Batch) -> LossOutput:
        actions = batch[columns.ACTIONS]
        inputs, values = (output.float() for output in self.policy.inputs_and_values(batch[columns.OBS]))
        with torch.no_grad():
            q = self.target_values(batch[columns.OBS], actions)
            targets = td_targets(batch, self.policy.values(batch[columns.NEW_OBS]))
        advantages = q - values
        value_loss = expectile_loss(advantages, self.config.expectile)
        errors = self.critics(observed(self.policy, batch[columns.OBS]), actions) - targets
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

    def log_metrics(self, means: dict[str, float]) -> dict[str, float]:
        return weight_metrics(means)


def expectile_loss(errors: Tensor, expectile: float) -> Tensor:
    """|τ - 1(u < 0)| · u²: underestimates (u > 0) count τ, overestimates 1 - τ (Newey & Powell 1987); elementwise."""
    return torch.where(errors < 0, 1 - expectile, expectile) * errors.square()
