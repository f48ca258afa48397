"""Critics: the standard network, stacked; what they see, and what teaches them."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from offline_core.learning.algorithms.actor_critic import CriticConfig, observed
from offline_core.learning.algorithms.critics import Critics
from offline_core.learning.algorithms.registry import algorithms
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy
from tests.learning.algorithms.by_hand import q_of
from tests.learning.algorithms.making import BOX, VECTOR, made_steps, make_networks, whole_batch, with_box_actions

STANDARD = NetworkConfig(hidden_sizes=[256, 256], activation="relu")
SMALL = NetworkConfig(hidden_sizes=[8, 5])


def critics_of(
    space: gym.Space[Any], network: NetworkConfig = SMALL, *, obs: gym.Space[Any] = VECTOR, **config: Any
) -> Critics:
    """With weights far apart, and layer norms that scale and shift."""
    critics = Critics(Policy(obs, space, network).encoder, space, network, **dict(CriticConfig(**config)), seed=0)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in critics.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return critics


@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        ({"number": 1}, 69_889),  # (11 + 3) · 256 + 256, 256 · 256 + 256, 256 + 1, as in all references
        ({}, 2 * 69_889),
        ({"layer_norm": True}, 2 * (69_889 + 2 * 2 * 256)),
        ({"hidden_sizes": [256, 256, 256]}, 2 * (69_889 + 65_792)),
    ],
    ids=str,
)
def test_the_standard_network_of_hopper(config: dict[str, Any], parameters: int) -> None:
    hopper = gym.spaces.Box(-np.inf, np.inf, (11,)), gym.spaces.Box(-1.0, 1.0, (3,))
    critics = critics_of(hopper[1], STANDARD, obs=hopper[0], **config)
    assert sum(parameter.numel() for parameter in critics.parameters()) == parameters


@pytest.mark.parametrize("name", ["iql", "awac", "cql", "cal_ql", "sac", "td3", "td3_bc", "rebrac"])
def test_one_critic_is_enough_to_learn(name: str) -> None:
    """RLlib's `twin_q=False`."""
    config = algorithms()[name].model_validate({"critics": {"number": 1}})
    networks = make_networks(name, VECTOR, BOX, SMALL, config)
    terms = networks(whole_batch(networks, with_box_actions(made_steps([9, 3], [True, False]))))
    terms.loss.mean().backward()
    assert terms.loss.isfinite().all() and {term.shape for term in (terms.loss, *terms.metrics.values())} == {(12,)}


@pytest.mark.parametrize("layer_norm", [False, True])
def test_each_critic_is_a_network_of_its_own(layer_norm: bool) -> None:
    """A layer norm follows each activation, with a scale and a shift for each unit, and none the output."""
    critics = critics_of(BOX, number=3, layer_norm=layer_norm)
    obs, actions = torch.randn(20, 3), torch.rand(20, 2) * 4 - 1
    found = critics(obs, actions)
    assert found.shape == (3, 20)
    torch.testing.assert_close(found.double(), q_of(critics, obs, (actions - 1) / 2), rtol=1e-4, atol=1e-5)
    if layer_norm:
        inputs = torch.cat([obs * 1e3, actions], dim=1)
        assert (critics(inputs[:, :3], actions).abs() < 20).all(), "values far from the data stay bounded"


def test_several_actions_of_each_observation_one_after_the_other() -> None:
    critics = critics_of(BOX)
    obs, actions = torch.randn(5, 3), torch.rand(4, 5, 2)
    found = critics(obs, actions.flatten(0, 1)).unflatten(1, (4, 5))
    for number in range(4):
        torch.testing.assert_close(found[:, number], critics(obs, actions[number]))


@pytest.mark.parametrize("obs", [VECTOR, gym.spaces.Box(0, 255, (8, 8, 1), np.uint8)], ids=["vector", "image"])
def test_fixed_critics_learn_nothing_and_say_the_same_of_actions(obs: gym.spaces.Box) -> None:
    policy = Policy(obs, BOX, SMALL)
    critics = Critics(policy.encoder, BOX, SMALL, layer_norm=True, seed=0)
    seen = observed(policy, torch.from_numpy(np.stack([obs.sample() for _ in range(6)])))
    gradients = []
    for values in (critics, critics.fixed):
        actions = torch.full((6, 2), 0.5, requires_grad=True)
        found = values(seen, actions)
        found.sum().backward()
        gradients.append((found.detach(), actions.grad))
        assert any(parameter.grad is not None for parameter in critics.parameters()) == (values is critics)
        critics.zero_grad()
    torch.testing.assert_close(*gradients)
    assert gradients[0][1].any()


def test_actions_of_the_smallest_range_are_seen_in_units_of_their_bounds() -> None:
    critics = critics_of(gym.spaces.Box(np.array([1.0, -1e-5], np.float32), np.array([1.0002, 3e-5], np.float32)))
    seen = critics.actions(torch.tensor([[1.0, 1e-5], [1.0002, 3e-5]]))
    torch.testing.assert_close(seen, torch.tensor([[-1.0, 0.0], [1.0, 1.0]]), rtol=0, atol=1e-3)
