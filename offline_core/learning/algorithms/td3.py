"""Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018, arXiv 1802.09477)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, cast

import gymnasium as gym
from pydantic import Field

from offline_core.data.episodes import columns
from offline_core.learning.algorithms.actor_critic import (
    ActorCritic,
    box_only,
    move,
    observed,
    target_of,
    target_values,
    td_targets,
)
from offline_core.learning.algorithms.algorithm import LossOutput
from offline_core.policies.config import NetworkConfig
from offline_core.runtime.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

    from offline_core.data.environments.vector_env import Spaces
    from offline_core.learning.algorithms.networks import Networks
    from offline_core.learning.steps import Batch, BatchSpec, Steps
    from offline_core.policies.gaussian import GaussianHead
    from offline_core.policies.policy import Policy


class TD3(ActorCritic):
    """A deterministic policy and noise (Fujimoto et al. 2018, arXiv 1802.09477). For play, not for logs."""

    policy_interval_updates: int = Field(2, ge=1, le=10**6, description="The policy learns in one of so many updates.")
    target_noise: float = Field(
        0.2,
        ge=0,
        le=10,
        description="Standard deviation of the noise of next actions, in halves of their range.",
    )
    target_noise_limit: float = Field(0.5, ge=0, le=10, description="Largest noise of next actions, in halves of their range.")
    exploration_noise: float = Field(
        0.1,
        ge=1e-3,
        le=7,
        description="Standard deviation of sampled actions, in halves of their range, when the policy plays with exploration.",
    )

    climbed: ClassVar[int | None] = 1
    """How many critics the policy climbs, the first ones; None: all."""

    def build(self, networks: Networks, spaces: Spaces, network: NetworkConfig, seed: int) -> None:
        super().build(networks, spaces, network, seed)
        networks.target_policy = target_of(networks.policy)
        networks.policy_learns = True

    def policy_network(self, network: NetworkConfig, action_space: gym.Space[Any]) -> NetworkConfig:
        box_only(self, action_space)
        std = network.fixed_std or self.exploration_noise
        return NetworkConfig(**network.model_dump() | {"bounded_mean": True, "fixed_std": std, "squash": False})

    def prepare(self, networks: Networks, steps: Steps, spec: BatchSpec) -> None:
        super().prepare(networks, steps, spec)
        if networks.updates == 0:  # the policy may have got weights meanwhile
            networks.target_policy.load_state_dict(networks.policy.state_dict())

    def before_update(self, networks: Networks) -> None:
        networks.policy_learns = (networks.updates + 1) % self.policy_interval_updates == 0

    def loss(self, networks: Networks, batch: Batch) -> LossOutput:
        """A deterministic policy climbs the first critic; next actions come from its target, with noise.

        The policy and all targets change in one of `policy_interval_updates` updates. Draws from Torch's global generator.
        """
        encoded = observed(networks.policy, batch[columns.OBS])
        with torch.no_grad():
            new_actions = self.new_actions(networks, batch)
            following = target_values(networks, batch[columns.NEW_OBS], new_actions)
            target = td_targets(batch, self.following(networks, following, new_actions, batch))
        q = networks.critics(encoded, batch[columns.ACTIONS])
        errors = q - target
        critic_loss = errors.square().sum(dim=0)
        smallest = q.detach().min(dim=0).values
        metrics = {
            "critic_loss": critic_loss,
            "q": smallest,
            "q_min": smallest,
            "q_max": q.max(dim=0).values,
            "target_q": target,
        }
        loss = critic_loss
        if networks.policy_learns or not networks.training:
            head = gaussian(networks.policy)
            actions = head.to_space(head.unit_mean(networks.policy.features(batch[columns.OBS])).float())
            policy_loss = self.policy_loss(
                networks, networks.critics.fixed(encoded, actions, first=self.climbed), actions, batch
            )
            loss = loss + policy_loss
            metrics["policy_loss"] = policy_loss
        return LossOutput(loss, metrics, errors.detach().abs().mean(dim=0))

    def new_actions(self, networks: Networks, batch: Batch) -> Tensor:
        """Return the target policy's next actions (B, *action shape), with noise, within the bounds."""
        target, limit = networks.target_policy, self.target_noise_limit
        mean = gaussian(target).unit_mean(target.features(batch[columns.NEW_OBS])).float()
        noise = (torch.randn_like(mean) * self.target_noise).clamp(-limit, limit)
        return gaussian(networks.policy).to_space(mean + noise)

    def following(self, networks: Networks, values: Tensor, new_actions: Tensor, batch: Batch) -> Tensor:
        """Return what the targets count as the value (B,) of what follows, from the target critics' (B,)."""
        return values

    def policy_loss(self, networks: Networks, q: Tensor, actions: Tensor, batch: Batch) -> Tensor:
        """Return the policy's loss (B,), from the values (critics, B) of its actions (B, *action shape)."""
        return -q[0]

    def after_update(self, networks: Networks, means: dict[str, Tensor]) -> None:
        if networks.policy_learns:
            super().after_update(networks, means)
            move(networks.target_policy, networks.policy, self.target_rate)


def gaussian(policy: Policy) -> GaussianHead:
    """Return the policy's distribution, whose mean is the action."""
    return cast("GaussianHead", policy.head)


def differences(networks: Networks, actions: Tensor, others: Tensor) -> Tensor:
    """Return the differences (B, components) of actions (B, *action shape), in halves of their range."""
    head = gaussian(networks.policy)
    return head.scaled(actions) - head.scaled(others)
