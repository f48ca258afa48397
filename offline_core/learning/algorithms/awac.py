"""AWAC (Nair et al. 2020, "Accelerating Online Reinforcement Learning with Offline Datasets", arXiv 2006.09359)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from offline_core.data.episodes import columns
from offline_core.learning.algorithms.actor_critic import ActorCritic, observed, target_values, td_targets
from offline_core.learning.algorithms.algorithm import LossOutput
from offline_core.learning.algorithms.weights import advantage_weights, weight_metrics
from offline_core.runtime.lazy import torch

if TYPE_CHECKING:
    from offline_core.learning.algorithms.networks import Networks
    from offline_core.learning.steps import Batch


class AWAC(ActorCritic):
    """Cloning that weighs each action by what the critics think of it (Nair et al. 2020, arXiv 2006.09359)."""

    temperature: float = Field(1.0, gt=0, le=1e6, description="How little better actions count more, in units of reward.")
    max_weight: float = Field(100.0, gt=0, le=1e6, description="A step counts this much at most.")

    def loss(self, networks: Networks, batch: Batch) -> LossOutput:
        """Clone with the weight exp((Q(s, a) - V(s)) / temperature), where V is the value of an action of the policy.

        The critics value what the policy does next. Draws from Torch's global generator.
        """
        policy, actions = networks.policy, batch[columns.ACTIONS]
        encoded = observed(policy, batch[columns.OBS])
        inputs = policy(batch[columns.OBS]).float()
        with torch.no_grad():
            new_inputs = policy(batch[columns.NEW_OBS]).float()
            following = target_values(networks, batch[columns.NEW_OBS], policy.head.sample(new_inputs))
            target = td_targets(batch, following)
            values = networks.critics(encoded, policy.head.sample(inputs)).min(dim=0).values
        q = networks.critics(encoded, actions)
        errors, smallest = q - target, q.detach().min(dim=0).values
        critic_loss = errors.square().sum(dim=0)
        weights, metrics = advantage_weights((smallest - values) / self.temperature, self.max_weight)
        policy_loss = -weights * policy.head.log_prob(inputs, actions)
        metrics |= {
            "policy_loss": policy_loss,
            "critic_loss": critic_loss,
            "entropy": policy.head.entropy(inputs),
            "value": values,
            "q": smallest,
            "q_min": smallest,
            "q_max": smallest,
            "advantage": smallest - values,
        }
        return LossOutput(policy_loss + critic_loss, metrics, errors.detach().abs().mean(dim=0))

    def log_metrics(self, networks: Networks, means: dict[str, float]) -> dict[str, float]:
        return weight_metrics(means)
