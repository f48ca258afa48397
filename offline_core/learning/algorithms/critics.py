"""Values of actions of any space: twin critics (Fujimoto et al. 2018, arXiv 1802.09477)."""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from offline_core.episodes.nested import Nested
from offline_core.policies.config import NetworkConfig
from offline_core.policies.encoder import Encoder, leaf_spaces
from offline_core.policies.gaussian import BoxHead
from offline_core.policies.layers import ACTIVATIONS, make_layers
from offline_core.policies.policy import Policy
from offline_core.runtime.seeding import derive_seed


class Critics(nn.Module):
    """Two critics that differ in their initial weights alone: the smaller of the two overestimates less.

    Their input is `observed`, so the policy's filter applies.

    Arguments:
        encoder: the policy's.
        action_space: of the actions.
        network: layers over the observation; the action joins before one more.
        seed: of the initial weights.
    """

    def __init__(self, encoder: Encoder, action_space: gym.Space[Any], network: NetworkConfig, *, seed: int) -> None:
        super().__init__()
        self.actions = _scaling_encoder(action_space)
        self.networks = nn.ModuleList()
        for number in range(2):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(derive_seed(seed, "critic", number))
                self.networks.append(_Critic(encoder, self.actions.size, network))

    def forward(self, encoded: Tensor, actions: Nested) -> Tensor:
        """Return the values (2, B) of nested actions (B, …) at B observations as encoded by `observed`.

        With K actions for each observation, those for all observations one after the other: (K·B, …) → (2, K·B).
        """
        flat = self.actions(actions)
        return torch.stack([network(encoded, flat) for network in self.networks]).float()

    @torch.no_grad()
    def move_to(self, learned: Critics, rate: float) -> None:
        """Move these target critics this share of the way to the learned ones."""
        for target, parameter in zip(self.parameters(), learned.parameters(), strict=True):
            target.lerp_(parameter, rate)


def _scaling_encoder(space: gym.Space[Any]) -> Encoder:
    """Return an encoder to one-hot values, and to components of a Box scaled to ±1 where they have bounds."""
    encoder = Encoder(space, normalize=True, clip=math.inf)
    boxes = [
        BoxHead(leaf) if isinstance(leaf, gym.spaces.Box) else int(gym.spaces.flatdim(leaf)) for leaf in leaf_spaces(space)
    ]
    centers = [torch.zeros(box) if isinstance(box, int) else box.center for box in boxes]
    half_ranges = [torch.ones(box) if isinstance(box, int) else box.half_range for box in boxes]
    encoder.mean.copy_(torch.cat(centers))
    encoder.variance.copy_(torch.cat(half_ranges).double().square())
    return encoder


def observed(policy: Policy, observations: Nested) -> Tensor:
    """Return observations (B, …) as the policy's encoder encodes them, without a gradient from the critics."""
    return policy.encode(observations).detach()


class _Critic(nn.Module):
    def __init__(self, encoder: Encoder, action_size: int, network: NetworkConfig) -> None:
        super().__init__()
        self.hidden, features = make_layers(encoder, network)
        self.joint = nn.Linear(features + action_size, features)
        self.activation = ACTIVATIONS[network.activation]()
        self.q = nn.Linear(features, 1)

    def forward(self, encoded: Tensor, actions: Tensor) -> Tensor:
        features = self.hidden(encoded)
        if len(actions) > len(features):
            features = features.repeat(len(actions) // len(features), 1)
        q: Tensor = self.q(self.activation(self.joint(torch.cat([features, actions], dim=1)))).squeeze(1)
        return q
