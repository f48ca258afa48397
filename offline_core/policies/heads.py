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
        ConfigError: there is no head for that kind of space, or nothing in it that can be squashed.
    """
    head = _make(space, features, squash)
    if squash and not any(isinstance(part, SquashedGaussianHead) for part in head.modules()):
        raise ConfigError(f"Nothing in the action space {space} can be squashed, only Box can: set squash to false.")
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
        f"No policy can act in the space {space} yet; Discrete, MultiDiscrete, MultiBinary and floating-point Box can be "
        "used, and Dict and Tuple of them."
    )
