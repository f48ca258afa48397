"""MARWIL: value targets, weights, the normaliser, and that β = 0 is behaviour cloning to the bit."""

from __future__ import annotations

import copy
import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from offline_core.learning.algorithms.bc import BC
from offline_core.learning.algorithms.marwil import MARWIL, values_of
from offline_core.learning.algorithms.networks import Networks
from offline_core.learning.returns import steps_left, value_targets
from offline_core.learning.steps import BatchSpec
from offline_core.policies.config import NetworkConfig
from tests.learning.algorithms.making import (
    LINEAR,
    VECTOR,
    loaded,
    log_softmax,
    made_steps,
    make_networks,
    numpy_of,
    update,
    whole_batch,
)

TWO = gym.spaces.Discrete(2)
SMALL = NetworkConfig(hidden_sizes=[8])
BETA_0 = MARWIL(beta=0.0)


def marwil(network: NetworkConfig = SMALL, *, seed: int = 0, **config: Any) -> MARWIL:
    """With the paper's value loss, unless `config` says otherwise."""
    return Networks(MARWIL(**{"normalize_values": False} | config), VECTOR, TWO, network, seed=seed)


def with_values(networks: Networks, weight: list[float], bias: float) -> MARWIL:
    """A linear value function of the observations."""
    with torch.no_grad():
        networks.policy.value.weight.copy_(torch.tensor([weight]))
        networks.policy.value.bias.fill_(bias)
    return networks


def test_the_loss_of_each_step_is_the_papers() -> None:
    networks = marwil(LINEAR, beta=2.0, max_weight=3.0, value_coefficient=0.7, normalizer_start=4.0, seed=3)
    rng = np.random.default_rng(0)
    obs, actions = rng.normal(size=(32, 3)).astype(np.float32), rng.integers(0, 2, 32)
    targets = rng.normal(size=32).astype(np.float32) * 3
    terms = networks(
        {"obs": torch.from_numpy(obs), "actions": torch.from_numpy(actions), "value_targets": torch.from_numpy(targets)}
    )
    terms.loss.sum().backward()

    policy = numpy_of(networks.policy)
    log_probs = log_softmax(obs @ policy["_head.logits.weight"].T + policy["_head.logits.bias"])
    advantages = targets - (obs @ policy["value.weight"][0] + policy["value.bias"][0])
    unclipped = np.exp(2.0 * advantages / 2.0)
    weights = np.minimum(unclipped, 3.0)
    assert 0 < (unclipped > 3.0).sum() < 32
    expected = -weights * log_probs[np.arange(32), actions] + 0.7 * 0.5 * advantages**2
    np.testing.assert_allclose(terms.loss.detach().numpy(), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(terms.metrics["weights_clipped"].mean(), (unclipped > 3.0).mean())
    # The weight is a number: the policy does not learn through it, and the value function only from its own error.
    policy_gradient = ((np.exp(log_probs) - np.eye(2)[actions]) * weights[:, None]).T @ obs
    np.testing.assert_allclose(networks.policy._head.logits.weight.grad, policy_gradient, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(networks.policy.value.weight.grad[0], -0.7 * advantages @ obs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("gae_lambda", [1.0, 0.9, 0.0])
def test_value_targets_come_from_whole_episodes_and_the_present_value_function(gae_lambda: float) -> None:
    """At first, and after it has learned; bootstrapped where an episode was not terminated, and nowhere else."""
    networks = marwil(gae_lambda=gae_lambda, gamma=0.9)
    steps = made_steps([30, 1, 7, 12], [True, False, False, True])
    reading = BatchSpec(networks.algorithm.batch_columns)
    loaded(networks, steps, reading)
    for weight in (None, [1.0] * 8):
        if weight:
            with_values(networks, weight, -2.0)
            networks.algorithm.refresh(networks, steps, reading)
        expected = value_targets(
            steps.columns["rewards"],
            networks.policy.values(steps.columns["obs"]).detach(),
            steps_left(steps),
            terminated=steps.columns["terminateds"],
            gamma=0.9,
            gae_lambda=gae_lambda,
        )
        found = steps.columns["value_targets"]
        assert found.dtype == torch.float32
        np.testing.assert_allclose(found[steps.rows], expected[steps.rows], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("gae_lambda", "ends"), [(1.0, True), (1.0, False), (0.9, True)])
def test_values_are_asked_for_once_before_the_first_update(
    monkeypatch: pytest.MonkeyPatch, gae_lambda: float, ends: bool
) -> None:
    """Once the normaliser has begun; and then the targets are there, whatever they are made of."""
    asked = []

    def counting(policy: Any, steps: Any, rows: torch.Tensor, reading: BatchSpec) -> torch.Tensor:
        asked.append(len(rows))
        return values_of(policy, steps, rows, reading)

    monkeypatch.setattr("offline_core.learning.algorithms.marwil.values_of", counting)
    networks = marwil(gae_lambda=gae_lambda, normalizer_start=1.0)
    steps = loaded(networks, made_steps([30, 7], [ends, ends]), BatchSpec(networks.algorithm.batch_columns))
    assert asked == [2 if gae_lambda == 1 else 39]
    assert steps.columns["value_targets"][steps.rows].isfinite().all()


def test_a_refresh_costs_what_it_looks_at() -> None:
    steps, ended = made_steps([30, 7], [True, False]), made_steps([30, 7], [True, True])
    reading = BatchSpec(MARWIL.batch_columns)
    for gae_lambda, some, none in ((1.0, 2 + 0.39, 0), (0.5, 39, 39)):
        networks = marwil(gae_lambda=gae_lambda)
        networks.algorithm.prepare(networks, steps, reading)
        networks.algorithm.prepare(networks, ended, reading)
        assert networks.algorithm.refresh_rows(networks, steps, reading) == pytest.approx(some)
        assert networks.algorithm.refresh_rows(networks, ended, reading) == none


@pytest.mark.parametrize("share_layers", [False, True])
def test_beta_0_is_behaviour_cloning_to_the_bit(share_layers: bool) -> None:
    """Where gradients are clipped by their norm as well; a value function that only looks like a trained one is not made."""
    network = NetworkConfig(hidden_sizes=[16, 8], share_layers=share_layers)
    cloning, weighing = (
        Networks(BC(), VECTOR, TWO, network, seed=5),
        make_networks("marwil", VECTOR, TWO, network, BETA_0, seed=5),
    )
    steps = made_steps([40, 40, 40], [True, False, True])
    batch = whole_batch(weighing, steps)
    for networks in (cloning, weighing):
        optimizer = torch.optim.Adam(networks.parameters(), lr=0.01, fused=True)
        for _ in range(20):
            optimizer.zero_grad()
            networks(batch).loss.mean().backward()
            torch.nn.utils.clip_grad_norm_(networks.parameters(), 0.01)
            optimizer.step()
    for name, tensor in cloning.policy.state_dict().items():
        assert torch.equal(tensor, weighing.policy.state_dict()[name]), name
    assert not weighing.policy.value_function


def test_the_normaliser_starts_at_the_mean_squared_advantage_of_the_dataset() -> None:
    networks = with_values(marwil(LINEAR, gamma=0.5), [0.0, 0.0, 0.0], 1.0)
    steps = made_steps([2, 1], [True, True])
    steps.columns["rewards"] = torch.tensor([2.0, 4.0, math.nan, -1.0, math.nan])
    networks.algorithm.prepare(networks, steps, BatchSpec(networks.algorithm.batch_columns))
    # Targets 2 + 4 / 2, 4 and -1, each less a value of 1.
    assert networks.normalizer.item() == pytest.approx((9 + 9 + 4) / 3)


def test_the_normaliser_starts_once_and_travels_with_the_weights() -> None:
    networks = marwil()
    first, second = made_steps([5], [True]), made_steps([9], [False], seed=1)
    networks.algorithm.prepare(networks, first, BatchSpec(networks.algorithm.batch_columns))
    started = networks.normalizer.clone()
    networks.algorithm.prepare(networks, second, BatchSpec(networks.algorithm.batch_columns))
    other = marwil(seed=1)
    other.load_state_dict(networks.state_dict())
    other.algorithm.prepare(other, second, BatchSpec(networks.algorithm.batch_columns))
    assert started == networks.normalizer == other.normalizer
    assert "normalizer" in networks.state_dict()


def test_the_normaliser_follows_the_mean_of_the_global_batch() -> None:
    networks = marwil(normalizer_start=10.0, normalizer_rate=0.25)
    for _ in range(2):
        networks.algorithm.after_update(networks, {"squared_advantage": torch.tensor(2.0)})
    assert networks.normalizer.item() == pytest.approx(2 + 8 * 0.75**2)


def test_the_value_loss_is_divided_by_the_variance_of_the_datasets_targets() -> None:
    """It starts once and travels with the weights; where all targets are one, nothing is divided."""
    steps = made_steps([30, 7], [True, True])
    normed, plain = (marwil(LINEAR, gamma=0.9, normalize_values=normalize) for normalize in (True, False))
    losses = [networks(whole_batch(networks, steps)).metrics["value_loss"] for networks in (normed, plain)]
    variance = steps.columns["value_targets"][steps.rows].double().var(correction=0)
    torch.testing.assert_close(losses[0].double() * variance, losses[1].double(), rtol=1e-5, atol=1e-6)
    other = marwil(LINEAR, normalize_values=True, seed=1)
    other.load_state_dict(normed.state_dict())
    other.algorithm.prepare(other, made_steps([9], [True], seed=1), BatchSpec(other.algorithm.batch_columns))
    assert other.value_variance == normed.value_variance
    constant = made_steps([1, 1], [True, True])
    constant.columns["rewards"] = torch.ones(4)
    networks = marwil(LINEAR, normalize_values=True)
    whole_batch(networks, constant)
    assert networks.value_variance == 1


def test_units_of_reward_do_not_matter() -> None:
    """Rewards and values in cents instead of euros: the same weights."""
    steps = made_steps([20, 20], [True, False])
    found = []
    for unit in (1.0, 100.0):
        networks = with_values(marwil(LINEAR), [0.1 * unit, 0.0, -0.2 * unit], 0.5 * unit)
        scaled = copy.copy(steps)
        scaled.columns = steps.columns | {"rewards": steps.columns["rewards"] * unit}
        found.append(networks(whole_batch(networks, scaled)).metrics["weight"])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


def test_reported_numbers() -> None:
    networks = marwil(normalizer_start=9.0)
    targets, advantages, weights = np.array([1.0, 5.0, 6.0]), np.array([1.0, 0.0, -0.5]), np.array([1.0, 2.0, 20.0])
    means = {
        "weight": weights.mean(),
        "squared_weight": (weights**2).mean(),
        "weights_clipped": 1 / 3,
        "advantage": advantages.mean(),
        "squared_advantage": (advantages**2).mean(),
        "value_target": targets.mean(),
        "squared_value_target": (targets**2).mean(),
        "policy_loss": 0.5,
    }
    numbers = networks.algorithm.log_metrics(networks, means)
    assert numbers["effective_sample_size"] == pytest.approx(weights.sum() ** 2 / (weights**2).sum() / 3)
    assert numbers["explained_variance"] == pytest.approx(1 - advantages.var() / targets.var())
    assert numbers["weights_clipped"] == 1 / 3
    assert numbers["normalizer"] == 9.0
    assert numbers["policy_loss"] == 0.5


def test_better_actions_are_preferred_where_cloning_is_torn() -> None:
    """Both actions were taken equally often, but action 1 was rewarded: the weights have to decide."""
    steps = made_steps([1] * 64, [True] * 64)
    steps.columns["obs"] = torch.zeros(128, 3)
    steps.columns["actions"] = torch.arange(128) // 2 % 2
    steps.columns["rewards"] = steps.columns["actions"].double()
    preferred = []
    for beta in (0.0, 1.0):
        networks = marwil(beta=beta)
        batch = whole_batch(networks, steps)
        optimizer = torch.optim.Adam(networks.parameters(), lr=0.03)
        for _ in range(200):
            update(networks, optimizer, batch)
        preferred.append(networks.policy(batch["obs"]).softmax(dim=1)[:, 1].mean().item())
    # Half the steps are rewarded: once V is learned A = ±1/2 and √c = 1/2, so the weights are e and 1/e.
    assert preferred[0] == pytest.approx(0.5, abs=0.01)
    assert preferred[1] == pytest.approx(1 / (1 + np.exp(-2)), abs=0.03)
