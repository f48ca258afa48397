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
