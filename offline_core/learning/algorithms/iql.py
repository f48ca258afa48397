"""Implicit Q-learning (Kostrikov et al. 2021, "Offline Reinforcement Learning with Implicit Q-Learning")."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from offline_core.data.episodes import columns
from offline_core.learning.algorithms.actor_critic import ActorCritic, observed, target_values, td_targets
from offline_core.learning.algorithms.algorithm import LossOutput
from offline_core.learning.algorithms.weights import advantage_weights, weight_metrics
from offline_core.runtime.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

    from offline_core.learning.algorithms.networks import Networks
    from offline_core.learning.steps import Batch


class IQL(ActorCritic):
    """Values from the better actions of the data alone (Kostrikov et al. 2021)."""

    beta: float = Field(3.0, ge=0, le=1e4, description="How much better actions count more, per unit of reward; 0 clones.")
    expectile: float = Field(0.7, gt=0, lt=1, description="0.5 values the data's average action, towards 1 its best.")
    max_weight: float = Field(100.0, gt=0, le=1e6, description="A step counts this much at most.")

    has_value_function: ClassVar[bool] = True

    def loss(self, networks: Networks, batch: Batch) -> LossOutput:
        """Learn the value of the better actions of the data, without evaluating others, and clone those.

        Three losses, each of which trains its own networks: the value function is an upper expectile of the target critics,
        the critics are one reward and the next value, the policy clones with the weight exp(β · (Q - V)). Only with
        `network.share_layers`, policy and value function both train the shared layers.
        """
        policy, actions = networks.policy, batch[columns.ACTIONS]
        inputs, values = (output.float() for output in policy.inputs_and_values(batch[columns.OBS]))
        with torch.no_grad():
            q = target_values(networks, batch[columns.OBS], actions)
            targets = td_targets(batch, policy.values(batch[columns.NEW_OBS]))
        advantages = q - values
        value_loss = expectile_loss(advantages, self.expectile)
        errors = networks.critics(observed(policy, batch[columns.OBS]), actions) - targets
        critic_loss = errors.square().sum(dim=0)
        weights, metrics = advantage_weights(self.beta * advantages, self.max_weight)
        policy_loss = -weights * policy.head.log_prob(inputs, actions)
        metrics |= {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "critic_loss": critic_loss,
            "entropy": policy.head.entropy(inputs),
            "value": values,
            "q": q,
            "q_min": q,
            "q_max": q,
            "advantage": advantages,
        }
        return LossOutput(policy_loss + value_loss + critic_loss, metrics, errors.detach().abs().mean(dim=0))

    def log_metrics(self, networks: Networks, means: dict[str, float]) -> dict[str, float]:
        return weight_metrics(means)


def expectile_loss(errors: Tensor, expectile: float) -> Tensor:
    """|τ - 1(u < 0)| · u²: underestimates (u > 0) count τ, overestimates 1 - τ (Newey & Powell 1987); elementwise."""
    return torch.where(errors < 0, 1 - expectile, expectile) * errors.square()
