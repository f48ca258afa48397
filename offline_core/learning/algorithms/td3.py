"""Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018, arXiv 1802.09477)."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from torch import Tensor

from offline_core.data.episodes import columns
from offline_core.learning.algorithms.actor_critic import ActorCritic, box_only, td_targets
from offline_core.learning.algorithms.algorithm import LossOutput
from offline_core.learning.algorithms.critics import observed
from offline_core.learning.algorithms.targets import move, target_of
from offline_core.learning.algorithms.td3_config import TD3Config
from offline_core.learning.steps import Batch, BatchSpec, Steps
from offline_core.policies.config import NetworkConfig
from offline_core.policies.gaussian import GaussianHead


class TD3(ActorCritic):
    """A deterministic policy climbs the first critic; next actions come from its target, with noise.

    The policy and all targets change in one of `policy_interval_updates` updates. Draws from Torch's global generator.
    """

    config_class = TD3Config
    config: TD3Config

    def build(self, observation_space: gym.Space[Any], action_space: gym.Space[Any], network: NetworkConfig, seed: int) -> None:
        super().build(observation_space, action_space, network, seed)
        self.target_policy = target_of(self.policy)
        self.policy_learns = True

    def policy_network(self, network: NetworkConfig, action_space: gym.Space[Any]) -> NetworkConfig:
        box_only(self, action_space)
        std = network.fixed_std or self.config.exploration_noise
        return NetworkConfig(**network.model_dump() | {"bounded_mean": True, "fixed_std": std, "squash": False})

    @property
    def head(self) -> GaussianHead:
        """The actor's distribution, whose mean is the action."""
        head = self.policy.head
        assert isinstance(head, GaussianHead)
        return head

    def prepare(self, steps: Steps, spec: BatchSpec) -> None:
        super().prepare(steps, spec)
        if self.updates == 0:
            self.target_policy.load_state_dict(self.policy.state_dict())  # the policy may have got weights meanwhile

    def before_update(self, updates: int) -> None:
        super().before_update(updates)
        self.policy_learns = (updates + 1) % self.config.policy_interval_updates == 0

    def forward(self, batch: Batch) -> LossOutput:
        encoded = observed(self.policy, batch[columns.OBS])
        with torch.no_grad():
            new_actions = self.new_actions(batch)
            following = self.target_values(batch[columns.NEW_OBS], new_actions)
            target = td_targets(batch, self.following(following, new_actions, batch))
        q = self.critics(encoded, batch[columns.ACTIONS])
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
        if self.policy_learns or not self.training:
            actions = self.head.to_space(self.head.unit_mean(self.policy.features(batch[columns.OBS])).float())
            policy_loss = self.policy_loss(self.critics.fixed(encoded, actions), actions, batch)
            loss = loss + policy_loss
            metrics["policy_loss"] = policy_loss
        return LossOutput(loss, {name: term.detach() for name, term in metrics.items()}, errors.detach().abs().mean(dim=0))

    def new_actions(self, batch: Batch) -> Tensor:
        """Return the target policy's next actions (B, *action shape), with noise, within the bounds."""
        head = self.target_policy.head
        assert isinstance(head, GaussianHead)
        mean = head.unit_mean(self.target_policy.features(batch[columns.NEW_OBS])).float()
        limit = self.config.target_noise_limit
        noise = (torch.randn_like(mean) * self.config.target_noise).clamp(-limit, limit)
        return self.head.to_space(mean + noise)

    def following(self, values: Tensor, new_actions: Tensor, batch: Batch) -> Tensor:
        """Return what the targets count as the value (B,) of what follows, from the target critics' (B,)."""
        return values

    def policy_loss(self, q: Tensor, actions: Tensor, batch: Batch) -> Tensor:
        """Return the policy's loss (B,), from the values (critics, B) of its actions (B, *action shape)."""
        return -q[0]

    def after_update(self, means: dict[str, Tensor]) -> None:
        if self.policy_learns:
            super().after_update(means)
            move(self.target_policy, self.policy, self.config.target_rate)
