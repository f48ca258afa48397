"""A policy as one thing: the same object is expert, recorder, evaluated, trained and exported."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import gymnasium as gym
import numpy as np
import torch
from torch import Generator, Tensor, nn

from offline_core.episodes import columns, nested
from offline_core.episodes.nested import Nested
from offline_core.errors import ConfigError
from offline_core.policies.config import NetworkConfig
from offline_core.policies.encoder import Encoder
from offline_core.policies.heads import Head, make_head

_ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "silu": nn.SiLU, "linear": nn.Identity}


class Actions(NamedTuple):
    """What a policy decided for a batch of observations."""

    actions: np.ndarray
    """(B, *action shape), in the environment's units and dtype."""
    extras: dict[str, np.ndarray]
    """`action_dist_inputs` (B, inputs) and `action_logp` (B,), float32."""


class Policy(nn.Module):
    """Observation → action distribution, with a value function beside it if asked for.

    Arguments:
        observation_space, action_space: what it sees and does.
        network: its layers.
        value_function: also estimate the value of an observation (`values`).
        seed: of the initial weights.
    """

    def __init__(
        self,
        observation_space: gym.Space[Any],
        action_space: gym.Space[Any],
        network: NetworkConfig = NetworkConfig(),
        *,
        value_function: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.observation_space = observation_space
        self.action_space = action_space
        self.network = network
        self.value_function = value_function
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.encoder = Encoder(observation_space, normalize=network.normalize_observations)
            self.hidden = _mlp(self.encoder.size, network)
            features = network.hidden_sizes[-1] if network.hidden_sizes else self.encoder.size
            self._head = make_head(action_space, features)
            if value_function:
                self.value_hidden = nn.Identity() if network.share_layers else _mlp(self.encoder.size, network)
                self.value = nn.Linear(features, 1)
                nn.init.orthogonal_(self.value.weight)
                nn.init.zeros_(self.value.bias)

    @classmethod
    def load(cls, uri: str) -> Policy:
        """The policy of the checkpoint at `uri`, in evaluation mode; see `offline_core.policies.checkpoint.load_policy`."""
        from offline_core.policies.checkpoint import load_policy

        return load_policy(uri)

    @property
    def head(self) -> Head:
        """The action distribution."""
        return cast(Head, self._head)

    def check_spaces(self, environment: str, spaces: tuple[gym.Space[Any], gym.Space[Any]]) -> None:
        """Sizes have to match; bounds need not, as those of a policy learned from foreign data may have been guessed.

        Raises:
            ConfigError: this policy cannot act in an environment with these (observation, action) spaces.
        """
        ours = (self.observation_space, self.action_space)
        for what, own, found in zip(("observation", "action"), ours, spaces, strict=True):
            if type(own) is not type(found) or gym.spaces.flatdim(own) != gym.spaces.flatdim(found):
                raise ConfigError(f"The policy has the {what} space {own}, environment {environment} has {found}.")

    def forward(self, observations: Nested) -> Tensor:
        """Nested tensors (B, …) → distribution inputs (B, inputs)."""
        return self.head(self.hidden(self.encoder(observations)))

    def inputs_and_values(self, observations: Nested) -> tuple[Tensor, Tensor]:
        """Distribution inputs (B, inputs) and values (B,); needs the value function."""
        encoded = self.encoder(observations)
        features = self.hidden(encoded)
        value_features = self.value_hidden(features if self.network.share_layers else encoded)
        return self.head(features), self.value(value_features).squeeze(1)

    def values(self, observations: Nested) -> Tensor:
        """Values (B,) of nested observation tensors (B, …)."""
        encoded = self.encoder(observations)
        return cast(
            Tensor, self.value(self.value_hidden(self.hidden(encoded) if self.network.share_layers else encoded)).squeeze(1)
        )

    @torch.inference_mode()
    def act(self, observations: Nested, *, explore: bool, generator: Generator | None = None) -> Actions:
        """Actions for a batch of observations as numpy arrays (B, …): sampled if `explore`, else the most likely ones."""
        inputs = self(as_tensors(observations))
        actions = self.head.sample(inputs, generator) if explore else self.head.mode(inputs)
        extras = {
            columns.ACTION_DIST_INPUTS: inputs.numpy(),
            columns.ACTION_LOGP: self.head.log_prob(inputs, actions).numpy(),
        }
        return Actions(self.head.to_env(actions), extras)

    @torch.inference_mode()
    def greedy(self, observations: Nested) -> np.ndarray:
        """The most likely actions (B, *action shape) for a batch of observations as numpy arrays."""
        return self.head.to_env(self.head.mode(self(as_tensors(observations))))


def as_tensors(observations: Nested) -> Nested:
    """Nested numpy arrays as tensors, by view where that may be written to; Arrow's, for one, may not."""
    return nested.map_leaves(lambda array: torch.from_numpy(np.require(array, requirements=["C", "W"])), observations)


def _mlp(inputs: int, network: NetworkConfig) -> nn.Sequential:
    layers: list[nn.Module] = []
    for size in network.hidden_sizes:
        linear = nn.Linear(inputs, size)
        nn.init.orthogonal_(linear.weight, gain=2**0.5)
        nn.init.zeros_(linear.bias)
        layers += [linear, _ACTIVATIONS[network.activation]()]
        inputs = size
    return nn.Sequential(*layers)
