"""AWAC: losses by hand in float64, for Box and for Discrete actions; weights that may be clipped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from offline_core.learning.algorithms.awac import AWAC
from offline_core.learning.algorithms.networks import Networks
from offline_core.policies.config import NetworkConfig
from tests.cases import slow_but
from tests.learning.algorithms.by_hand import (
    HALF_RANGE,
    check,
    following,
    mean_of,
    normal_log_density,
    q_of,
    scaled,
    spread,
    through,
)
from tests.learning.algorithms.making import BOX, TWO, VECTOR, made_steps, update, whole_batch, with_box_actions

SMALL = NetworkConfig(hidden_sizes=[8])
LENGTHS, TERMINATED = [6, 1, 5], [True, False, False]


def awac(space: Any, **config: Any) -> AWAC:
    return spread(Networks(AWAC(gamma=0.9, temperature=0.5, max_weight=2.0, **config), VECTOR, space, SMALL))


def test_each_step_by_the_papers_equations() -> None:
    networks = awac(BOX)
    networks.policy.head.log_std.data = torch.tensor([-0.5, 0.3])
    steps = with_box_actions(made_steps(LENGTHS, TERMINATED))
    batch = whole_batch(networks, steps)
    torch.manual_seed(0)
    output = networks(batch)

    torch.manual_seed(0)
    obs, rows = steps.columns["obs"], steps.rows
    after = following(steps, LENGTHS, TERMINATED, gamma=0.9)
    with torch.no_grad():
        log_std = networks.policy.head.log_std.double()

        def drawn(obs: torch.Tensor) -> torch.Tensor:
            noise = torch.randn(len(obs), 2).double()
            return (mean_of(networks.policy, obs) + log_std.exp() * noise).clamp(-1, 1)

        values = q_of(networks.targets, obs[after.rows], drawn(obs[after.rows])).min(dim=0).values
        target = after.rewards + after.discounts * values
        taken = scaled(steps.columns["actions"][rows])
        learned = q_of(networks.critics, obs[rows], taken)
        baseline = q_of(networks.critics, obs[rows], drawn(obs[rows])).min(dim=0).values
        advantages = learned.min(dim=0).values - baseline
        weights = torch.exp(advantages / 0.5).clamp(max=2.0)
        assert (weights == 2.0).any() and (weights < 2.0).any()
        log_probs = normal_log_density(taken, mean_of(networks.policy, obs[rows]), log_std) - np.log(HALF_RANGE)
        policy_loss = -weights * log_probs.sum(dim=1)
    critic_loss = ((learned - target) ** 2).sum(dim=0)
    expected = {"critic_loss": critic_loss, "policy_loss": policy_loss, "advantage": advantages, "weight": weights}
    check(output, expected, critic_loss + policy_loss)


def test_discrete_actions_by_the_papers_equations() -> None:
    networks = awac(TWO)
    steps = made_steps(LENGTHS, TERMINATED)
    batch = whole_batch(networks, steps)
    torch.manual_seed(0)
    output = networks(batch)

    torch.manual_seed(0)
    obs, rows = steps.columns["obs"], steps.rows
    after = following(steps, LENGTHS, TERMINATED, gamma=0.9)
    with torch.no_grad():

        def log_probs(obs: torch.Tensor) -> torch.Tensor:
            return through([*networks.policy.hidden, networks.policy.head.logits], obs.double()).log_softmax(dim=1)

        def one_hot(actions: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.one_hot(actions, 2)

        new_actions, own = (torch.multinomial(log_probs(obs[seen]).exp().float(), 1)[:, 0] for seen in (after.rows, rows))
        values = q_of(networks.targets, obs[after.rows], one_hot(new_actions)).min(dim=0).values
        taken = steps.columns["actions"][rows]
        learned = q_of(networks.critics, obs[rows], one_hot(taken))
        baseline = q_of(networks.critics, obs[rows], one_hot(own)).min(dim=0).values
        weights = torch.exp((learned.min(dim=0).values - baseline) / 0.5).clamp(max=2.0)
        policy_loss = -weights * log_probs(obs[rows]).gather(1, taken[:, None]).squeeze(1)
        critic_loss = ((learned - after.rewards - after.discounts * values) ** 2).sum(dim=0)
    expected = {"critic_loss": critic_loss, "policy_loss": policy_loss, "weight": weights}
    check(output, expected, critic_loss + policy_loss)


def test_no_loss_teaches_anothers_networks() -> None:
    networks = awac(BOX)
    batch = whole_batch(networks, with_box_actions(made_steps(LENGTHS, TERMINATED)))
    torch.manual_seed(0)
    output = networks(batch)
    output.loss.sum().backward()
    found = {name: parameter.grad.clone() for name, parameter in networks.named_parameters() if parameter.requires_grad}
    networks.zero_grad()
    head = networks.policy.head
    policy_loss = -(output.metrics["weight"] * head.log_prob(networks.policy(batch["obs"]), batch["actions"])).sum()
    policy_loss.backward()
    for name, parameter in networks.policy.named_parameters():
        torch.testing.assert_close(found.pop(f"policy.{name}"), parameter.grad, rtol=1e-4, atol=1e-5)
    assert all(name.startswith("critics.") for name in found)
    assert all(parameter.grad is None for parameter in networks.critics.parameters())


@pytest.mark.parametrize("temperature", slow_but([0.3, 1.0], 0.3))
def test_the_better_action_is_preferred_by_its_advantage(temperature: float) -> None:
    """A bandit with rewards 0 and 1, both taken equally often: the critics know both, and weights are exp(A / temperature)."""
    steps = made_steps([1] * 64, [True] * 64)
    steps.columns["obs"] = torch.zeros(128, 3)
    steps.columns["actions"] = torch.arange(128) // 2 % 2
    steps.columns["rewards"] = steps.columns["actions"].double()
    networks = Networks(AWAC(temperature=temperature), VECTOR, TWO, SMALL)
    batch = whole_batch(networks, steps)
    optimizer = torch.optim.Adam([p for p in networks.parameters() if p.requires_grad], lr=0.02)
    torch.manual_seed(0)
    for _ in range(300):
        update(networks, optimizer, batch)
    odds = networks.policy(torch.zeros(1, 3)).softmax(dim=1)[0, 1].item()
    assert odds == pytest.approx(1 / (1 + np.exp(-1 / temperature)), abs=0.03)
