"""Behaviour cloning, against softmax regression in float64."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import torch

from offline_core.learning.algorithms.bc import BC
from tests.learning.algorithms.making import LINEAR, VECTOR, log_softmax, numpy_of


def test_cloning_with_a_linear_policy_is_softmax_regression() -> None:
    rng = np.random.default_rng(0)
    algorithm = BC(VECTOR, gym.spaces.Discrete(4), LINEAR, seed=1)
    weights = numpy_of(algorithm.policy._head)
    obs, actions = rng.normal(size=(16, 3)).astype(np.float32), rng.integers(0, 4, 16)
    terms = algorithm({"obs": torch.from_numpy(obs), "actions": torch.from_numpy(actions)})
    terms.loss.sum().backward()

    log_probs = log_softmax(obs @ weights["logits.weight"].T + weights["logits.bias"])
    np.testing.assert_allclose(terms.loss.detach().numpy(), -log_probs[np.arange(16), actions], rtol=1e-5)
    np.testing.assert_allclose(terms.metrics["entropy"].numpy(), -(np.exp(log_probs) * log_probs).sum(axis=1), rtol=1e-5)
    gradient = (np.exp(log_probs) - np.eye(4)[actions]).T @ obs
    np.testing.assert_allclose(algorithm.policy._head.logits.weight.grad, gradient, rtol=1e-4, atol=1e-6)


def test_gaussian_actions_are_cloned_with_their_spread() -> None:
    """Actions a = 0.5 o + noise of 0.1, well inside the bounds: the linear policy has to find both."""
    rng = np.random.default_rng(0)
    algorithm = BC(gym.spaces.Box(-1, 1, (1,)), gym.spaces.Box(-2, 2, (1,)), LINEAR)
    optimizer = torch.optim.Adam(algorithm.parameters(), lr=0.05)
    obs = rng.uniform(-1, 1, (4096, 1)).astype(np.float32)
    actions = (0.5 * obs + 0.1 * rng.normal(size=obs.shape)).astype(np.float32)
    for _ in range(300):
        loss = algorithm({"obs": torch.from_numpy(obs), "actions": torch.from_numpy(actions)}).loss.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    mean, log_std = algorithm.policy(torch.tensor([[0.8]])).chunk(2, dim=1)
    assert abs(mean.item() - 0.4) < 0.02
    assert abs(log_std.exp().item() - 0.1) < 0.01
    assert abs(loss.item() - (np.log(0.1) + 0.5 * np.log(2 * np.pi * np.e))) < 0.02
