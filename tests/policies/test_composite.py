"""Dict and Tuple actions: each part as by its own head, all of them together."""

from __future__ import annotations

from typing import Any, cast

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from offline_core.errors import ConfigError
from offline_core.policies.config import NetworkConfig
from offline_core.policies.head import Head
from offline_core.policies.heads import CompositeHead, make_head
from offline_core.policies.squashed import SquashedGaussianHead

VECTOR = spaces.Box(-1, 1, (4,))
DICT = spaces.Dict([("steer", spaces.Box(-2, 2, (2,))), ("gear", spaces.Discrete(4, start=1))])  # not in alphabetical order
TUPLE = spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 1, (1,), np.float64), spaces.MultiBinary(2)])
DEEP = spaces.Dict(hands=spaces.Tuple([spaces.Discrete(3), DICT]), legs=spaces.MultiDiscrete([[2, 3], [4, 5]]))
every_space = pytest.mark.parametrize("space", [DICT, TUPLE, DEEP], ids=["dict", "tuple", "deep"])


def head_of(space: gym.Space[Any], **how: Any) -> CompositeHead:
    head = make_head(space, 3, NetworkConfig(**how))
    assert isinstance(head, CompositeHead)
    return head


def parts_of(space: gym.Space[Any]) -> list[gym.Space[Any]]:
    match space:
        case spaces.Dict():
            return [leaf for child in space.spaces.values() for leaf in parts_of(child)]
        case spaces.Tuple():
            return [leaf for child in space.spaces for leaf in parts_of(child)]
    return [space]


def leaves_of(space: gym.Space[Any], actions: Any) -> list[Any]:
    match space:
        case spaces.Dict():
            return [leaf for key, child in space.spaces.items() for leaf in leaves_of(child, actions[key])]
        case spaces.Tuple():
            return [leaf for child, part in zip(space.spaces, actions, strict=True) for leaf in leaves_of(child, part)]
    return [actions]


@every_space
def test_probabilities_and_entropies_are_the_sums_of_the_parts(space: gym.Space[Any]) -> None:
    head, alone = head_of(space), [cast(Head, make_head(part, 3)) for part in parts_of(space)]
    inputs = torch.randn(30, head.inputs_size, generator=torch.Generator().manual_seed(0))
    actions = head.sample(inputs, torch.Generator().manual_seed(1))
    own = inputs.split([part.inputs_size for part in alone], dim=1)
    leaves = leaves_of(space, actions)
    expected = sum(part.log_prob(i, leaf) for part, i, leaf in zip(alone, own, leaves, strict=True))
    torch.testing.assert_close(head.log_prob(inputs, actions), expected)
    torch.testing.assert_close(head.entropy(inputs), sum(part.entropy(i) for part, i in zip(alone, own, strict=True)))
    modes = [part.mode(i) for part, i in zip(alone, own, strict=True)]
    assert all(map(torch.equal, leaves_of(space, head.mode(inputs)), modes))


def test_boxes_inside_are_squashed_too() -> None:
    head = head_of(DICT, squash=True)
    assert isinstance(head.parts[0], SquashedGaussianHead)
    inputs = head(torch.randn(50, 3) * 1e4)
    assert DICT["steer"].contains(head.to_env(head.mode(inputs.detach()))["steer"][0])


@pytest.mark.parametrize(
    "space", [spaces.Tuple([spaces.Discrete(2), spaces.Box(0, 9, (2,), np.int32)]), spaces.Dict(a=spaces.Dict())]
)
def test_an_unsupported_part_is_named(space: gym.Space[Any]) -> None:
    with pytest.raises(ConfigError, match=r"in the space (Box\(0, 9, \(2,\), int32\)|Dict\(\))"):
        make_head(space, 3)
