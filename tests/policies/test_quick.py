"""Playing with numpy: the distribution of the policy, as it is now."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy
from offline_core.policies.quick import QuickPolicy

OBSERVATIONS = gym.spaces.Box(-np.inf, np.inf, (3,), np.float64)
BOX = gym.spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 1.0], np.float32))
COUNT = 20_000


def policy_of(actions: gym.Space[Any], **network: Any) -> Policy:
    policy = Policy(OBSERVATIONS, actions, NetworkConfig(hidden_sizes=[8, 8], **network), seed=1)
    for parameter in policy.head.parameters():  # type: ignore[attr-defined]
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.5, generator=torch.Generator().manual_seed(2))
    return policy


def sampled(policy: Policy, observation: np.ndarray) -> np.ndarray:
    """Actions (COUNT, …) for one observation, as many at a time as `plays` allows."""
    quick = QuickPolicy(policy, seed=3)
    batch = np.repeat(observation[None], COUNT, axis=0)
    return quick.act(batch, quick.initial_state(COUNT), explore=True)[0]


@pytest.mark.parametrize("network", [{}, {"bounded_mean": True}, {"fixed_std": 0.3}, {"activation": "relu"}], ids=str)
def test_box_actions_have_the_mean_and_deviation_of_the_policys(network: dict[str, Any]) -> None:
    policy, observation = policy_of(BOX, **network), np.array([0.3, -1.0, 2.0])
    found = sampled(policy, observation)
    slow = policy.act(np.repeat(observation[None], COUNT, axis=0), explore=True, generator=torch.Generator().manual_seed(4))
    assert found.shape == slow.shape and found.dtype == slow.dtype
    assert all(BOX.contains(action) for action in found[:100])
    np.testing.assert_allclose(found.mean(axis=0), slow.mean(axis=0), atol=0.03)
    np.testing.assert_allclose(found.std(axis=0), slow.std(axis=0), atol=0.03)
    for bound in (BOX.low, BOX.high):
        np.testing.assert_allclose((found == bound).mean(axis=0), (slow == bound).mean(axis=0), atol=0.02)


@pytest.mark.parametrize(
    "space", [gym.spaces.Discrete(3, start=5), gym.spaces.MultiDiscrete([2, 3]), gym.spaces.MultiBinary(2)], ids=str
)
def test_other_actions_are_as_frequent_as_the_policys(space: gym.Space[Any]) -> None:
    policy, observation = policy_of(space), np.array([0.3, -1.0, 2.0])
    found = sampled(policy, observation)
    assert found.dtype == space.dtype and found.shape == (COUNT, *(space.shape or ())) and space.contains(found[0])
    values, counts = np.unique(found, axis=0, return_counts=True)
    inputs = policy(torch.from_numpy(np.repeat(observation[None], len(values), axis=0)))
    expected = policy.head.log_prob(inputs, torch.from_numpy(values)).exp().detach().numpy()
    assert expected.sum() == pytest.approx(1, abs=0.01)
    np.testing.assert_allclose(counts / COUNT, expected, atol=0.015)


def test_it_plays_as_the_policy_and_its_filter_are_now() -> None:
    policy = policy_of(BOX, normalize_observations=True, fixed_std=1e-3)
    quick, batch = QuickPolicy(policy, seed=0), np.random.default_rng(0).normal(5.0, 3.0, (4, 3))
    state = quick.initial_state(4)
    before = quick.act(batch, state, explore=True)[0]
    policy.encoder.update_statistics(torch.from_numpy(batch))
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(1.5)
    after = quick.act(batch, state, explore=True)[0]
    assert not np.allclose(before, after, atol=0.02)
    np.testing.assert_allclose(after, policy.act(batch), atol=0.02)


def test_it_leaves_to_torch_what_is_not_plain_or_large() -> None:
    plain = Policy(OBSERVATIONS, BOX)
    assert QuickPolicy.plays(plain, 64) and not QuickPolicy.plays(plain, 65)
    image = gym.spaces.Box(0, 255, (16, 16, 3), np.uint8)
    half = gym.spaces.Box(-1, 1, (2,), np.float16)
    both = gym.spaces.Dict({"a": BOX, "b": gym.spaces.Discrete(2)})
    for policy in (
        Policy(OBSERVATIONS, BOX, NetworkConfig(frames=2)),
        Policy(OBSERVATIONS, BOX, NetworkConfig(recurrent="gru")),
        Policy(OBSERVATIONS, BOX, NetworkConfig(dropout=0.1)),
        Policy(OBSERVATIONS, BOX, NetworkConfig(activation="gelu")),
        Policy(OBSERVATIONS, BOX, NetworkConfig(squash=True)),
        Policy(OBSERVATIONS, half),
        Policy(OBSERVATIONS, both),
        Policy(gym.spaces.Discrete(3), BOX),
        Policy(image, BOX),
    ):
        assert not QuickPolicy.plays(policy, 1), policy
