"""AWAC (Nair et al. 2020, "Accelerating Online Reinforcement Learning with Offline Datasets", arXiv 2006.09359)."""

from __future__ import annotations

import torch

from offline_core.data.episodes import columns
from offline_core.learning.algorithms.actor_critic import ActorCritic, td_targets
from offline_core.learning.algorithms.algorithm import LossOutput
from offline_core.learning.algorithms.awac_config import AWACConfig
from offline_core.learning.algorithms.critics import observed
from offline_core.learning.algorithms.weights import advantage_weights, weight_metrics
from offline_core.learning.steps import Batch


class AWAC(ActorCritic):
    """Clones with the weight exp((Q(s, a) - V(s)) / temperature), where V is the value of an action of the policy.

    The critics value what the policy does next. Draws from Torch's global generator.
    """

    config_class = AWACConfig
    config: AWACConfig

    def forward(self, batch: Batch) -> LossOutput:
        actions, head = batch[columns.ACTIONS], self.policy.head
        encoded = observed(self.policy, batch[columns.OBS])
        inputs = self.policy(batch[columns.OBS]).float()
        with torch.no_grad():
            new_inputs = self.policy(batch[columns.NEW_OBS]).float()
            target = td_targets(batch, self.target_values(batch[columns.NEW_OBS], head.sample(new_inputs)))
            values = self.critics(encoded, head.sample(inputs)).min(dim=0).values
        q = self.critics(encoded, actions)
        errors, smallest = q - target, q.detach().min(dim=0).values
        critic_loss = errors.square().sum(dim=0)
        weights, metrics = advantage_weights((smallest - values) / self.config.temperature, self.config.max_weight)
        policy_loss = -weights * head.log_prob(inputs, actions)
        metrics |= {
            "policy_loss": policy_loss,
            "critic_loss": critic_loss,
            "entropy": head.entropy(inputs),
            "value": values,
            "q": smallest,
            "q_min": smallest,
            "q_max": smallest,
            "advantage": smallest - values,
        }
        return LossOutput(
            policy_loss + critic_loss,
            {name: term.detach() for name, term in metrics.items()},
            errors.detach().abs().mean(dim=0),
        )

    def log_metrics(self, means: dict[str, float]) -> dict[str, float]:
        return weight_metrics(means)
