"""Soft actor-critic (Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications", arXiv 1812.05905)."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from offline_core.data.episodes import columns
from offline_core.errors import ConfigError
from offline_core.learning.algorithms.actor_critic import ActorCritic, box_only, td_targets
from offline_core.learning.algorithms.algorithm import LossOutput
from offline_core.learning.algorithms.critics import observed
from offline_core.learning.algorithms.sac_config import SACConfig
from offline_core.learning.steps import Batch
from offline_core.policies.config import NetworkConfig
from offline_core.policies.squashed import SquashedGaussianHead


class SAC(ActorCritic):
    """An actor maximises the smallest critic and its own entropy, whose weight, the temperature, holds it at a target.

    Three losses, each of which trains its own networks. Draws from Torch's global generator.
    """

    config_class = SACConfig
    config: SACConfig

    def build(self, observation_space: gym.Space[Any], action_space: gym.Space[Any], network: NetworkConfig, seed: int) -> None:
        super().build(observation_space, action_space, network, seed)
        self.log_temperature = nn.Parameter(torch.zeros(()))
        self.log_half_ranges = float(self.head.half_range.log().sum())
        self.free_components = int((self.head.low < self.head.high).sum())
        target = -self.free_components if self.config.target_entropy is None else self.config.target_entropy
        self.target_entropy = self.log_half_ranges + target

    def policy_network(self, network: NetworkConfig, action_space: gym.Space[Any]) -> NetworkConfig:
        box_only(self, action_space)
        if network.bounded_mean or network.fixed_std is not None:
            raise ConfigError(f"{type(self).__name__} squashes actions: leave network.bounded_mean and network.fixed_std out.")
        return network.model_copy(update={"squash": True})

    @property
    def head(self) -> SquashedGaussianHead:
        """The actor's distribution."""
        head = self.policy.head
        assert isinstance(head, SquashedGaussianHead)
        return head

    def forward(self, batch: Batch) -> LossOutput:
        inputs = self.policy(batch[columns.OBS]).float()
        encoded = observed(self.policy, batch[columns.OBS])
        temperature = self.log_temperature.exp()
        with torch.no_grad():
            new_inputs = self.policy(batch[columns.NEW_OBS]).float()
            new_actions, new_log_probs = self.head.rsample(new_inputs)
            following = self.target_values(batch[columns.NEW_OBS], new_actions)
            if self.config.entropy_backup:
                following = following - temperature * new_log_probs
            target = td_targets(batch, following)
        q = self.critics(encoded, batch[columns.ACTIONS])
        errors = q - target
        critic_loss = errors.square().sum(dim=0)

        actions, log_probs = self.head.rsample(inputs)
        policy_loss = temperature.detach() * log_probs - self.critics.fixed(encoded, actions).min(dim=0).values
        temperature_loss = -self.log_temperature * (log_probs.detach() + self.target_entropy)
        smallest = q.min(dim=0).values
        metrics = {
            "policy_loss": policy_loss,
            "critic_loss": critic_loss,
            "entropy": -log_probs,
            "temperature": temperature.expand_as(log_probs),
            "q": smallest,
            "q_min": smallest,
            "q_max": q.max(dim=0).values,
            "target_q": target,
        }
        loss = policy_loss + critic_loss + temperature_loss
        penalty, penalty_metrics = self.penalty(batch, encoded, inputs.detach(), new_inputs, q)
        metrics |= penalty_metrics
        return LossOutput(
            loss if penalty is None else loss + penalty,
            {name: term.detach() for name, term in metrics.items()},
            errors.detach().abs().mean(dim=0),
        )

    def penalty(
        self, batch: Batch, encoded: Tensor, inputs: Tensor, new_inputs: Tensor, q: Tensor
    ) -> tuple[Tensor | None, dict[str, Tensor]]:
        """Return what is added to the loss of each step (B,), and its metrics.

        Arguments:
            encoded: (B, …), the observations as `observed` encodes them.
            inputs, new_inputs: (B, inputs), of the actor's distributions at `obs` and `new_obs`, without gradients.
            q: (critics, B), the values of the actions that were taken.
        """
        return None, {}
