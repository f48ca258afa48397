"""The action head for each kind of space, and that of Dict and Tuple spaces, which is made of them."""

from __future__ import annotations

from typing import Any, cast

import gymnasium as gym
import numpy as np
import torch
from torch import Generator, Tensor, nn

from offline_core.data.episodes.nested import Nested
from offline_core.errors import ConfigError
from offline_core.policies.categorical import CategoricalHead, ConstrainedHead
from offline_core.policies.config import NetworkConfig
from offline_core.policies.gaussian import BoxHead, GaussianHead
from offline_core.policies.head import Head
from offline_core.policies.squashed import SquashedGaussianHead


class CompositeHead(nn.Module):
    """One independent head a part, in the order of the space; `inputs` are those of the parts, concatenated.

    Actions are nested as the space: dicts or tuples of the parts' actions.
    """

    def __init__(self, space: gym.spaces.Dict | gym.spaces.Tuple, parts: list[nn.Module]) -> None:
        super().__init__()
        self.keys: list[Any] = list(space.spaces) if isinstance(space, gym.spaces.Dict) else list(range(len(parts)))
        self.named = isinstance(space, gym.spaces.Dict)
        self._parts = nn.ModuleList(parts)
        self.sizes = [part.inputs_size for part in self.parts]
        self.inputs_size = sum(self.sizes)

    @property
    def parts(self) -> list[Head]:
        """The head of each part."""
        return [cast(Head, part) for part in self._parts]

    def forward(self, features: Tensor) -> Tensor:
        return torch.cat([part(features) for part in self.parts], dim=1)

    def sample(self, inputs: Tensor, generator: Generator | None = None) -> Nested:
        return self._nested([part.sample(own, generator) for part, own in self._split(inputs)])

    def mode(self, inputs: Tensor) -> Nested:
        return self._nested([part.mode(own) for part, own in self._split(inputs)])

    def log_prob(self, inputs: Tensor, actions: Nested) -> Tensor:
        parts = zip(self._split(inputs), self.keys, strict=True)
        return torch.stack([part.log_prob(own, actions[key]) for (part, own), key in parts]).sum(dim=0)

    def entropy(self, inputs: Tensor) -> Tensor:
        return torch.stack([part.entropy(own) for part, own in self._split(inputs)]).sum(dim=0)

    def to_env(self, actions: Nested) -> Nested:
        return self._nested([part.to_env(actions[key]) for part, key in zip(self.parts, self.keys, strict=True)])

    def _split(self, inputs: Tensor) -> list[tuple[Head, Tensor]]:
        return list(zip(self.parts, inputs.split(self.sizes, dim=1), strict=True))

    def _nested(self, values: list[Any]) -> Nested:
        return dict(zip(self.keys, values, strict=True)) if self.named else tuple(values)


def make_head(space: gym.Space[Any], features: int, network: NetworkConfig = NetworkConfig()) -> nn.Module:
    """The head for an action space.

    Raises:
        ConfigError: the space is not supported, or `network` says something about Box actions and no part of it is a Box, or
            has an imitator and it is not a list of actions.
    """
    head = _make(space, features, network)
    of_boxes = {"squash": False, "bounded_mean": False, "fixed_std": None}
    said = [f"network.{name}" for name, default in of_boxes.items() if getattr(network, name) != default]
    if said and not any(isinstance(part, BoxHead) for part in head.modules()):
        raise ConfigError(
            f"The action space {space} has no Box, and {said[0]} is for Box: leave it, or the preset that sets it, out."
        )
    if network.imitation_threshold is not None and not isinstance(head, ConstrainedHead):
        raise ConfigError(f"network.imitation_threshold is for a list of actions, and {space} is none: leave it out.")
    return head


def _make(space: gym.Space[Any], features: int, network: NetworkConfig) -> nn.Module:
    match space:
        case gym.spaces.Discrete():
            return _choices([int(space.n)], [int(space.start)], space, features, network)
        case gym.spaces.MultiDiscrete():
            return _choices(space.nvec.reshape(-1).tolist(), space.start.reshape(-1).tolist(), space, features, network)
        case gym.spaces.MultiBinary():
            bits = int(np.prod(space.shape))
            return _choices([2] * bits, [0] * bits, space, features, network)
        case gym.spaces.Box() if np.issubdtype(space.dtype, np.floating):
            if network.squash:
                return SquashedGaussianHead(space, features)
            return GaussianHead(space, features, bounded_mean=network.bounded_mean, fixed_std=network.fixed_std)
        case gym.spaces.Dict() if space.spaces:
            return CompositeHead(space, [_make(part, features, network) for part in space.spaces.values()])
        case gym.spaces.Tuple() if space.spaces:
            return CompositeHead(space, [_make(part, features, network) for part in space.spaces])
    raise ConfigError(
        f"Actions in the space {space} are not supported; use Discrete, MultiDiscrete, MultiBinary, floating-point Box, or "
        "Dict and Tuple of them."
    )


def _choices(sizes: list[int], starts: list[int], space: gym.Space[Any], features: int, network: NetworkConfig) -> nn.Module:
    if network.imitation_threshold is not None and len(sizes) == 1:
        return ConstrainedHead(sizes, starts, space, features, network.imitation_threshold)
    return CategoricalHead(sizes, starts, space, features)
