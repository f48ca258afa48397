"""Behaviour cloning, against softmax regression in float64."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch

from offline_core.errors import ConfigError
from offline_core.learning.algorithms.bc import BC
from offline_core.learning.algorithms.networks import Networks
from offline_core.policies.config import NetworkConfig
from tests.learning.algorithms.by_hand import mean_of, scaled
from tests.learning.algorithms.making import BOX, LINEAR, VECTOR, log_softmax, make_networks, numpy_of


def test_cloning_with_a_linear_policy_is_softmax_regression() -> None:
    rng = np.random.default_rng(0)
    networks = Networks(BC(), VECTOR, gym.spaces.Discrete(4), LINEAR, seed=1)
    weights = numpy_of(networks.policy._head)
    obs, actions = rng.normal(size=(16, 3)).astype(np.float32), rng.integers(0, 4, 16)
    terms = networks({"obs": torch.from_numpy(obs), "actions": torch.from_numpy(actions)})
    terms.loss.sum().backward()

    log_probs = log_softmax(obs @ weights["logits.weight"].T + weights["logits.bias"])
    np.testing.assert_allclose(terms.loss.detach().numpy(), -log_probs[np.arange(16), actions], rtol=1e-5)
    np.testing.assert_allclose(terms.metrics["entropy"].numpy(), -(np.exp(log_probs) * log_probs).sum(axis=1), rtol=1e-5)
    gradient = (np.exp(log_probs) - np.eye(4)[actions]).T @ obs
    np.testing.assert_allclose(networks.policy._head.logits.weight.grad, gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("network", [NetworkConfig(), NetworkConfig(bounded_mean=True), NetworkConfig(squash=True)], ids=str)
def test_the_squared_error_is_of_the_mean_action_in_units_of_the_bounds(network: NetworkConfig) -> None:
    networks = Networks(BC(squared_error=True), VECTOR, BOX, network, seed=1)
    with torch.no_grad():
        networks.policy.head.mean.weight.normal_(generator=torch.Generator().manual_seed(0))
    obs, actions = torch.randn(16, 3), torch.rand(16, 2) * 4 - 1
    terms = networks({"obs": obs, "actions": actions})
    mean = mean_of(networks.policy, obs)
    mean = mean if network == NetworkConfig() else torch.tanh(mean)
    torch.testing.assert_close(terms.loss.double(), ((mean - scaled(actions)) ** 2).mean(dim=1), rtol=1e-5, atol=1e-6)
    terms.loss.sum().backward()
    head = networks.policy.head
    spread = [head.log_std] if isinstance(head.log_std, torch.nn.Parameter) else list(head.log_std.parameters())
    assert all(parameter.grad is None or not parameter.grad.any() for parameter in spread), "no distribution is learned"


def test_the_squared_error_finds_the_mean_where_the_likelihood_would_be_torn() -> None:
    """Half of the actions at a bound, half in the middle."""
    actions = torch.tensor([[3.0, 1.0], [1.0, -1.0]]).repeat(50, 1)
    networks = Networks(BC(squared_error=True), VECTOR, BOX, LINEAR)
    optimizer = torch.optim.Adam(networks.parameters(), lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        networks({"obs": torch.zeros(100, 3), "actions": actions}).loss.mean().backward()
        optimizer.step()
    assert networks.policy.act(np.zeros((1, 3), np.float32))[0].tolist() == pytest.approx([2.0, 0.0], abs=0.01)


def test_a_squared_error_of_choices_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"bc\.squared_error needs Box actions, found Discrete\(4\)"):
        make_networks("bc", VECTOR, gym.spaces.Discrete(4), algorithm=BC(squared_error=True))
