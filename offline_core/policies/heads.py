"""The action head for each kind of space."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from torch import nn

from offline_core.errors import ConfigError
from offline_core.policies.categorical import CategoricalHead
from offline_core.policies.composite import CompositeHead
from offline_core.policies.gaussian import GaussianHead
from offline_core.policies.squashed import SquashedGaussianHead


def make_head(space: gym.Space[Any], features: int, *, squash: bool = False) -> nn.Module:
    """The head for an action space; `squash` keeps the actions of Box spaces within their bounds by tanh.

    Raises:
        ConfigError: the space is not supported, or `squash` is set and no part of it is a Box.
    """
    head = _make(space, features, squash)
    if squash and not any(isinstance(part, SquashedGaussianHead) for part in head.modules()):
        raise ConfigError(f"The action space {space} has no Box, and only Box can be squashed: set squash to false.")
    return head


def _make(space: gym.Space[Any], features: int, squash: bool) -> nn.Module:
    match space:
        case gym.spaces.Discrete():
            return CategoricalHead([int(space.n)], [int(space.start)], space, features)
        case gym.spaces.MultiDiscrete():
            return CategoricalHead(space.nvec.reshape(-1).tolist(), space.start.reshape(-1).tolist(), space, features)
        case gym.spaces.MultiBinary():
            bits = int(np.prod(space.shape))
            return CategoricalHead([2] * bits, [0] * bits, space, features)
        case gym.spaces.Box() if np.issubdtype(space.dtype, np.floating):
            return SquashedGaussianHead(space, features) if squash else GaussianHead(space, features)
        case gym.spaces.Dict() if space.spaces:
            return CompositeHead(space, [_make(part, features, squash) for part in space.spaces.values()])
        case gym.spaces.Tuple() if space.spaces:
            return CompositeHead(space, [_make(part, features, squash) for part in space.spaces])
    raise ConfigError(
        f"Actions in the space {space} are not supported; use Discrete, MultiDiscrete, MultiBinary, floating-point Box, or "
        "Dict and Tuple of them."
    )
