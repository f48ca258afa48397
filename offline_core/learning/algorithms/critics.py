"""What an action is worth, for actions of any space: twin critics (Fujimoto et al. 2018, arXiv 1802.09477)."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import torch
from torch import Tensor, nn

from offline_core.episodes.nested import Nested
from offline_core.policies.config import NetworkConfig
from offline_core.policies.encoder import Encoder
from offline_core.policies.layers import ACTIVATIONS, make_layers
from offline_core.seeding import derive_seed


class Critics(nn.Module):
    """Two critics that differ in their initial weights alone: the smaller of the two overestimates less.

    They see observations as the policy's encoder makes them, with its filter, and have no memory.

    Arguments:
        encoder: the policy's.
        action_space: what the actions are from.
        network: layers over the observation; the action joins before one more.
        seed: of the initial weights.
    """

    def __init__(self, encoder: Encoder, action_space: gym.Space[Any], network: NetworkConfig, *, seed: int) -> None:
        super().__init__()
        self.actions = Encoder(action_space, normalize=False)
        self.networks = nn.ModuleList()
        for number in range(2):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(derive_seed(seed, "critic", number))
                self.networks.append(_Critic(encoder, self.actions.size, network))

    def forward(self, encoded: Tensor, actions: Nested) -> Tensor:
        """What `Policy.encode` made of B observations, and nested actions (B, …) → (2, B)."""
        flat = self.actions(actions)
        return torch.stack([network(encoded, flat) for network in self.networks]).float()


class _Critic(nn.Module):
    def __init__(self, encoder: Encoder, action_size: int, network: NetworkConfig) -> None:
        super().__init__()
        self.sequences = network.recurrent is not None
        self.hidden, features = make_layers(encoder, network)
        self.joint = nn.Linear(features + action_size, features)
        self.activation = ACTIVATIONS[network.activation]()
        self.q = nn.Linear(features, 1)

    def forward(self, encoded: Tensor, actions: Tensor) -> Tensor:
        features = self.hidden(encoded.flatten(0, 1) if self.sequences else encoded)
        q: Tensor = self.q(self.activation(self.joint(torch.cat([features, actions], dim=1)))).squeeze(1)
        return q
