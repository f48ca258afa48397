"""Soft actor-critic (Haarnoja et al. 2018, "Soft Actor-Critic Algorithms and Applications", arXiv 1812.05905)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import gymnasium as gym
from pydantic import Field

from offline_core.data.episodes import columns
from offline_core.errors import ConfigError
from offline_core.learning.algorithms.actor_critic import ActorCritic, box_only, observed, target_values, td_targets
from offline_core.learning.algorithms.algorithm import LossOutput
from offline_core.policies.config import NetworkConfig
from offline_core.runtime.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

    from offline_core.data.environments.vector_env import Spaces
    from offline_core.learning.algorithms.networks import Networks
    from offline_core.learning.steps import Batch
    from offline_core.policies.squashed import SquashedGaussianHead


class SAC(ActorCritic):
    """A random policy that maximises values and entropy (Haarnoja et al. 2018, arXiv 1812.05905). For play, not for logs."""

    entropy_backup: bool = Field(True, description="Next values include the policy's entropy, as in the paper.")
    target_entropy: float | None = Field(
        None,
        description="Entropy that the policy is held at, in nats, in units where the bounds of actions are ±1. None: -1 for "
        "each component.",
    )

    def build(self, networks: Networks, spaces: Spaces, network: NetworkConfig, seed: int) -> None:
        super().build(networks, spaces, network, seed)
        networks.log_temperature = torch.nn.Parameter(torch.zeros(()))
        head = squashed(networks)
        networks.log_half_ranges = float(head.half_range.log().sum())
        networks.free_components = int((head.low < head.high).sum())
        target = -networks.free_components if self.target_entropy is None else self.target_entropy
        networks.target_entropy = networks.log_half_ranges + target

    def policy_network(self, network: NetworkConfig, action_space: gym.Space[Any]) -> NetworkConfig:
        box_only(self, action_space)
        if network.bounded_mean or network.fixed_std is not None:
            raise ConfigError(f"{type(self).__name__} squashes actions: leave network.bounded_mean and network.fixed_std out.")
        return network.model_copy(update={"squash": True})

    def loss(self, networks: Networks, batch: Batch) -> LossOutput:
        """An actor maximises the smallest critic and its own entropy, whose weight, the temperature, holds it at a target.

        Three losses, each of which trains its own networks. Draws from Torch's global generator.
        """
        head = squashed(networks)
        inputs = networks.policy(batch[columns.OBS]).float()
        encoded = observed(networks.policy, batch[columns.OBS])
        temperature = networks.log_temperature.exp()
        with torch.no_grad():
            new_inputs = networks.policy(batch[columns.NEW_OBS]).float()
            new_actions, new_log_probs = head.rsample(new_inputs)
            following = target_values(networks, batch[columns.NEW_OBS], new_actions)
            if self.entropy_backup:
                following = following - temperature * new_log_probs
            target = td_targets(batch, following)
        q = networks.critics(encoded, batch[columns.ACTIONS])
        errors = q - target
        critic_loss = errors.square().sum(dim=0)

        actions, log_probs = head.rsample(inputs)
        policy_loss = temperature.detach() * log_probs - networks.critics.fixed(encoded, actions).min(dim=0).values
        temperature_loss = -networks.log_temperature * (log_probs.detach() + networks.target_entropy)
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
        penalty, penalty_metrics = self.penalty(networks, batch, encoded, inputs.detach(), new_inputs, q)
        metrics |= penalty_metrics
        return LossOutput(loss if penalty is None else loss + penalty, metrics, errors.detach().abs().mean(dim=0))

    def penalty(
        self, networks: Networks, batch: Batch, encoded: Tensor, inputs: Tensor, new_inputs: Tensor, q: Tensor
    ) -> tuple[Tensor | None, dict[str, Tensor]]:
        """Return what is added to the loss of each step (B,), and its metrics.

        Arguments:
            encoded: (B, …), the observations as `observed` encodes them.
            inputs, new_inputs: (B, inputs), of the actor's distributions at `obs` and `new_obs`, without gradients.
            q: (critics, B), the values of the actions that were taken.
        """
        return None, {}


def squashed(networks: Networks) -> SquashedGaussianHead:
    """Return the actor's distribution."""
    return cast("SquashedGaussianHead", networks.policy.head)
