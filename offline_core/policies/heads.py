"""The action head for each kind of space."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from torch import nn

from offline_core.errors import ConfigError
from offline_core.policies.categorical import CategoricalHead
from offline_core.policies.composite import CompositeHead
from offline_core.policies.config import NetworkConfig
from offline_core.policies.constrained import ConstrainedHead
from offline_core.policies.gaussian import BoxHead, GaussianHead
from offline_core.policies.squashed import SquashedGaussianHead


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
