"""One update, against gradients worked out by hand and in float64."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import torch

from offline_core.learning.config import OptimizerConfig
from offline_core.learning.learner import Learner
from offline_core.learning.losses import bc_loss
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy

LINEAR = NetworkConfig(hidden_sizes=[], activation="linear")


def test_bc_loss_of_a_linear_policy_is_softmax_regression() -> None:
    rng = np.random.default_rng(0)
    policy = Policy(gym.spaces.Box(-np.inf, np.inf, (3,)), gym.spaces.Discrete(4), LINEAR, seed=1)
    obs, actions = rng.normal(size=(16, 3)).astype(np.float32), rng.integers(0, 4, 16)
    loss, metrics = bc_loss(policy, {"obs": torch.from_numpy(obs), "actions": torch.from_numpy(actions)})
    loss.backward()

    weight, bias = (p.detach().double().numpy() for p in (policy.head.logits.weight, policy.head.logits.bias))
    logits = obs.astype(np.float64) @ weight.T + bias
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(loss.item(), -np.log(probabilities[np.arange(16), actions]).mean(), rtol=1e-6)
    gradient = (probabilities - np.eye(4)[actions]).T @ obs / 16
    np.testing.assert_allclose(policy.head.logits.weight.grad.numpy(), gradient, rtol=1e-4, atol=1e-7)
    entropy = -(probabilities * np.log(probabilities)).sum(axis=1).mean()
    np.testing.assert_allclose(metrics["entropy"].item(), entropy, rtol=1e-5)


def test_bc_on_gaussian_actions_finds_mean_and_spread() -> None:
    """Actions a = 0.5 o + noise of 0.1, well inside the bounds: the linear policy has to find both."""
    rng = np.random.default_rng(0)
    policy = Policy(gym.spaces.Box(-1, 1, (1,)), gym.spaces.Box(-2, 2, (1,)), LINEAR)
    learner = Learner(policy, bc_loss, OptimizerConfig(learning_rate=0.05))
    obs = rng.uniform(-1, 1, (4096, 1)).astype(np.float32)
    actions = (0.5 * obs + 0.1 * rng.normal(size=obs.shape)).astype(np.float32)
    for _ in range(300):
        metrics = learner.update({"obs": torch.from_numpy(obs), "actions": torch.from_numpy(actions)})
    mean, log_std = policy(torch.tensor([[0.8]])).chunk(2, dim=1)
    assert abs(mean.item() - 0.4) < 0.02
    assert abs(log_std.exp().item() - 0.1) < 0.01
    assert abs(metrics["loss"].item() - (np.log(0.1) + 0.5 * np.log(2 * np.pi * np.e))) < 0.02


def test_composite_observations_reach_the_policy_nested() -> None:
    space = gym.spaces.Dict({"a": gym.spaces.Box(-1, 1, (2,)), "b": gym.spaces.Tuple([gym.spaces.Discrete(3)])})
    policy = Policy(space, gym.spaces.Discrete(2))
    learner = Learner(policy, bc_loss, OptimizerConfig())
    before = policy.head.logits.weight.detach().clone()
    batch = {"obs/a": torch.zeros(5, 2), "obs/b/0": torch.tensor([0, 1, 2, 0, 1]), "actions": torch.ones(5, dtype=torch.long)}
    learner.update(batch)
    assert not torch.equal(before, policy.head.logits.weight)


def test_long_gradients_are_scaled_down() -> None:
    policy = Policy(gym.spaces.Box(-1, 1, (2,)), gym.spaces.Discrete(2))
    learner = Learner(policy, bc_loss, OptimizerConfig(max_gradient_norm=1e-3))
    metrics = learner.update({"obs": torch.full((8, 2), 100.0), "actions": torch.zeros(8, dtype=torch.long)})
    assert metrics["gradient_norm"] > 1e-3
    norm = torch.stack([p.grad.norm() for p in policy.parameters()]).norm()
    assert abs(norm.item() - 1e-3) < 1e-5
