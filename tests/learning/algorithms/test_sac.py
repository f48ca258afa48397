"""SAC, and CQL and Cal-QL, which are SAC whose critics are kept low outside the data: losses by hand, in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from offline_core.errors import ConfigError
from offline_core.learning.algorithms.cal_ql import CalQL
from offline_core.learning.algorithms.cql import ContinuousCQL
from offline_core.learning.algorithms.networks import Networks
from offline_core.learning.algorithms.sac import SAC
from offline_core.learning.returns import RETURNS_TO_GO
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy
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
from tests.learning.algorithms.making import BOX, VECTOR, made_steps, make_networks, whole_batch, with_box_actions

SMALL = NetworkConfig(hidden_sizes=[8])
LENGTHS, TERMINATED = [6, 1, 5], [True, False, False]
STEPS, SAMPLES = 12, 3


def sac(**config: Any) -> SAC:
    return spread(Networks(SAC(**config), VECTOR, BOX, SMALL))


def drawn(policy: Policy, obs: Tensor, draw: Tensor) -> tuple[Tensor, Tensor]:
    """Actions (B, 2) in units where the bounds are ±1, and their log densities (B,) in units of the environment."""
    mean, log_std = mean_of(policy, obs), through([*policy.hidden, policy.head.log_std], obs.double()).clamp(-8, 2)
    x = mean + log_std.exp() * draw.double()
    slope = torch.log(HALF_RANGE * (1 - torch.tanh(x) ** 2))
    return torch.tanh(x), (normal_log_density(x, mean, log_std) - slope).sum(dim=1)


@pytest.mark.parametrize("entropy_backup", [True, False])
def test_each_step_by_the_papers_equations(entropy_backup: bool) -> None:
    networks = sac(gamma=0.9, entropy_backup=entropy_backup, target_entropy=-1.5, n_step=2)
    networks.log_temperature.data.fill_(-0.7)
    steps = with_box_actions(made_steps(LENGTHS, TERMINATED))
    batch = whole_batch(networks, steps)
    torch.manual_seed(0)
    output = networks(batch)
    output.loss.mean().backward()

    torch.manual_seed(0)
    obs, rows = steps.columns["obs"], steps.rows
    after = following(steps, LENGTHS, TERMINATED, gamma=0.9, n_step=2)
    with torch.no_grad():
        new_actions, new_log_probs = drawn(networks.policy, obs[after.rows], torch.randn(STEPS, 2))
        values = q_of(networks.targets, obs[after.rows], new_actions).min(dim=0).values
        if entropy_backup:
            values -= math.exp(-0.7) * new_log_probs
        target = after.rewards + after.discounts * values
        learned = q_of(networks.critics, obs[rows], scaled(steps.columns["actions"][rows]))
        actions, log_probs = drawn(networks.policy, obs[rows], torch.randn(STEPS, 2))
        policy_loss = math.exp(-0.7) * log_probs - q_of(networks.critics, obs[rows], actions).min(dim=0).values
        excess = log_probs - 1.5 + 2 * math.log(HALF_RANGE)  # the target is in units where the bounds are ±1
    critic_loss = ((learned - target) ** 2).sum(dim=0)
    expected = {"critic_loss": critic_loss, "policy_loss": policy_loss, "target_q": target, "entropy": -log_probs}
    check(output, expected, critic_loss + policy_loss + 0.7 * excess)
    assert networks.log_temperature.grad is not None
    assert networks.log_temperature.grad.item() == pytest.approx(-excess.mean().item(), rel=1e-4)


@pytest.mark.parametrize("network", [{"bounded_mean": True}, {"fixed_std": 0.1}], ids=str)
@pytest.mark.parametrize("name", ["sac", "cql", "cal_ql"])
def test_settings_of_clipped_actions_are_refused(name: str, network: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"squashes actions: leave network\.bounded_mean and network\.fixed_std out"):
        make_networks(name, VECTOR, BOX, NetworkConfig(**network))


def conservative(kind: type[ContinuousCQL], **config: Any) -> Networks:
    return spread(Networks(kind(gamma=0.9, action_samples=SAMPLES, alpha=3.0, **config), VECTOR, BOX, SMALL))


@pytest.mark.parametrize("threshold", [None, 0.4])
@pytest.mark.parametrize("kind", [ContinuousCQL, CalQL])
def test_the_penalty_of_each_step_by_the_papers_equations(kind: type[ContinuousCQL], threshold: float | None) -> None:
    networks = conservative(kind, lagrange_threshold=threshold)
    steps = with_box_actions(made_steps(LENGTHS, TERMINATED))
    batch = whole_batch(networks, steps)
    if threshold is not None:
        networks.log_multiplier.data.fill_(0.3)
    torch.manual_seed(0)
    output = networks(batch)
    output.loss.sum().backward()

    torch.manual_seed(0)
    obs, rows = steps.columns["obs"], steps.rows
    after = following(steps, LENGTHS, TERMINATED, gamma=0.9)
    returns, _ = following(steps, LENGTHS, TERMINATED, gamma=0.9, n_step=100)[:2]
    with torch.no_grad():
        new_actions, _ = drawn(networks.policy, obs[after.rows], torch.randn(STEPS, 2))
        values = q_of(networks.targets, obs[after.rows], new_actions).min(dim=0).values
        critic_loss = ((learned(networks, steps) - (after.rewards + after.discounts * values)) ** 2).sum(dim=0)
        actions, log_probs = drawn(networks.policy, obs[rows], torch.randn(STEPS, 2))
        policy_loss = log_probs - q_of(networks.critics, obs[rows], actions).min(dim=0).values
        uniform = 2 * torch.rand(SAMPLES * STEPS, 2).double() - 1
        draws = torch.randn(2 * SAMPLES * STEPS, 2)
        exponents = []
        for sample in range(SAMPLES):
            rows_of = slice(sample * STEPS, (sample + 1) * STEPS)
            exponents.append(q_of(networks.critics, obs[rows], uniform[rows_of]) + 2 * math.log(2 * HALF_RANGE))
            for seen, first in ((rows, 0), (after.rows, SAMPLES * STEPS)):
                own, densities = drawn(networks.policy, obs[seen], draws[first:][rows_of])
                q = q_of(networks.critics, obs[rows], own)
                exponents.append((torch.maximum(q, returns) if kind is CalQL else q) - densities)
        integrals = torch.stack(exponents).exp().mean(dim=0).log()
        penalty = 3.0 * (integrals - learned(networks, steps)).sum(dim=0)
    expected = {"critic_loss": critic_loss, "policy_loss": policy_loss, "penalty": penalty}
    check(output, expected, critic_loss + policy_loss + (0 if threshold else penalty))  # what is pulled two ways sums to 0
    if threshold is not None:
        assert networks.log_multiplier.grad is not None
        assert networks.log_multiplier.grad.item() == pytest.approx(
            -math.exp(0.3) * (penalty - 2 * threshold).sum().item(), rel=1e-4
        )


def learned(networks: Networks, steps: Any) -> Tensor:
    return q_of(networks.critics, steps.columns["obs"][steps.rows], scaled(steps.columns["actions"][steps.rows]))


def test_the_multiplier_scales_what_the_penalty_teaches_the_critics() -> None:
    """And a penalty below the threshold is weighed less and less."""
    gradients = []
    for log_multiplier in (0.0, 1.0):
        networks = conservative(ContinuousCQL, lagrange_threshold=100.0)
        networks.log_multiplier.data.fill_(log_multiplier)
        batch = whole_batch(networks, with_box_actions(made_steps(LENGTHS, TERMINATED)))
        torch.manual_seed(0)
        networks(batch).loss.mean().backward()
        gradients.append(networks.critics.weights[-1].grad)
        assert networks.log_multiplier.grad > 0
    plain = conservative(ContinuousCQL)
    plain.algorithm = plain.algorithm.model_copy(update={"alpha": 0.0})
    torch.manual_seed(0)
    plain(whole_batch(plain, with_box_actions(made_steps(LENGTHS, TERMINATED)))).loss.mean().backward()
    without = plain.critics.weights[-1].grad
    torch.testing.assert_close(gradients[1] - without, math.e * (gradients[0] - without), rtol=1e-3, atol=1e-5)


def test_returns_are_of_the_rest_of_the_episode() -> None:
    """Discounted; an episode that was cut off has no value after it."""
    networks = Networks(CalQL(gamma=0.5), VECTOR, BOX, SMALL)
    steps = with_box_actions(made_steps([3, 2], [True, False]))
    steps.columns["rewards"] = torch.tensor([1.0, 2.0, 4.0, np.nan, 8.0, 16.0, np.nan])
    assert whole_batch(networks, steps)[RETURNS_TO_GO].tolist() == [3.0, 4.0, 4.0, 16.0, 16.0]


def test_values_above_the_return_are_pushed_down_as_in_cql_and_those_below_are_not() -> None:
    """With returns far below all values nothing is calibrated, with returns far above only uniform actions are pushed."""
    found = {}
    for reward in (-1e3, 1e3):
        penalties = []
        for kind in (ContinuousCQL, CalQL):
            networks = conservative(kind)
            steps = with_box_actions(made_steps([1] * 9, [True] * 9))
            steps.columns["rewards"] = torch.full((18,), reward)
            batch = whole_batch(networks, steps)
            torch.manual_seed(0)
            penalties.append(networks(batch).metrics["penalty"])
        found[reward] = penalties
    torch.testing.assert_close(*found[-1e3])
    assert (found[1e3][1] > found[1e3][0] + 100).all()
