"""CQL of continuous actions: the penalty's integral, losses that do not touch each other's networks, what it learns."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from offline_core.errors import ConfigError
from offline_core.learning.algorithms.cql import ContinuousCQL, uniform_actions
from offline_core.learning.algorithms.networks import Networks
from offline_core.learning.steps import Batch, Steps
from offline_core.policies.config import NetworkConfig
from tests.learning.algorithms.making import VECTOR, made_steps, make_networks, update, whole_batch

BOX = gym.spaces.Box(-1.0, 3.0, (1,))
SQUASHED = NetworkConfig(hidden_sizes=[8], squash=True)


def cql(space: gym.spaces.Box = BOX, *, seed: int = 0, **config: Any) -> ContinuousCQL:
    return Networks(ContinuousCQL(**config), VECTOR, space, SQUASHED, seed=seed)


def box_steps(lengths: list[int], terminated: list[bool]) -> Steps:
    steps = made_steps(lengths, terminated)
    steps.columns["actions"] = torch.rand(len(steps.episode), 1, generator=torch.Generator().manual_seed(0)) * 4 - 1
    return steps


def gradients(networks: Networks, batch: Batch) -> dict[str, torch.Tensor]:
    """Of the sum of the losses, with the same draws each time."""
    networks.zero_grad()
    torch.manual_seed(0)
    networks(batch).loss.sum().backward()
    return {name: p.grad.clone() for name, p in networks.named_parameters() if p.grad is not None}


def test_the_integral_is_that_of_a_fine_grid() -> None:
    networks = cql(action_samples=1_000)
    with torch.no_grad():
        networks.critics.weights[-1].mul_(3)
        encoded = torch.randn(4, 3, generator=torch.Generator().manual_seed(1))
        torch.manual_seed(0)
        inputs = torch.tensor([[0.2, 0.0]]).expand(4, 2)  # (mean, log std), wide enough to see all of the interval
        exponents = networks.algorithm.sampled_values(networks, {}, encoded, inputs, -inputs)
        found = exponents.logsumexp(dim=1) - np.log(exponents.shape[1])
        grid = torch.linspace(-1, 3, 401)
        q = torch.stack([networks.critics(encoded, a.expand(4, 1)) for a in grid], dim=-1).double()
        expected = torch.trapezoid(q.exp(), grid.double(), dim=-1).log()
    assert found.shape == (2, 4)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=0.07)


def test_uniform_actions_are_of_all_that_is_allowed() -> None:
    actions = uniform_actions(cql(), 1_000)
    assert actions.shape == (1_000, 1) and -1 <= actions.min() < -0.9 and 2.9 < actions.max() <= 3


def test_a_component_of_equal_bounds_is_drawn_there_and_weighs_nothing() -> None:
    low = np.array([-1.0, 0.25, 0.0], np.float32)
    fixed, free = (
        cql(gym.spaces.Box(low, np.array([3.0, 0.25, 2.0], np.float32))),
        cql(gym.spaces.Box(low[[0, 2]], np.float32([3, 2]))),
    )
    actions = uniform_actions(fixed, 1_000)
    assert (actions[:, 1] == 0.25).all() and actions[:, 0].max() > 2.9
    assert fixed.uniform_log_prob == pytest.approx(free.uniform_log_prob) == pytest.approx(-np.log(4 * 2))
    assert fixed.target_entropy == pytest.approx(free.target_entropy)
    steps = made_steps([6, 5], [True, False])
    steps.columns["actions"] = uniform_actions(fixed, len(steps.episode))
    assert fixed(whole_batch(fixed, steps)).loss.isfinite().all()


def test_critics_learn_from_their_targets_and_the_penalty_alone() -> None:
    networks = cql(alpha=0.0, gamma=0.9)
    batch = whole_batch(networks, box_steps([6, 5], [True, False]))
    found = gradients(networks, batch)
    torch.manual_seed(0)
    target = networks(batch).metrics["target_q"]
    networks.zero_grad()
    (networks.critics(batch["obs"], batch["actions"]) - target).square().sum().backward()
    for name, parameter in networks.critics.named_parameters():
        torch.testing.assert_close(found[f"critics.{name}"], parameter.grad, rtol=1e-4, atol=1e-6)
    assert target[5] == batch["n_step_rewards"][5], "nothing follows a termination"
    penalised = gradients(cql(alpha=3.0, gamma=0.9), batch)
    for name, gradient in found.items():
        same = torch.allclose(gradient, penalised[name], rtol=1e-4, atol=1e-6)
        assert same or name.startswith("critics"), f"{name}: the penalty is the critics' alone"
        assert not (same and name == "critics.weights.0")
    assert not any(name.startswith("targets") for name in found)


def test_the_temperature_holds_the_entropy() -> None:
    """It falls while the actor is too random, and the target is -1 a component in units where the bounds are ±1."""
    networks = cql(gym.spaces.Box(-5.0, 5.0, (2,)))
    assert networks.target_entropy == pytest.approx(-2 + 2 * np.log(5))
    steps = made_steps([9], [True])
    steps.columns["actions"] = torch.zeros(10, 2)
    batch = whole_batch(networks, steps)
    found = gradients(networks, batch)["log_temperature"]
    torch.manual_seed(0)
    entropy = networks(batch).metrics["entropy"]
    torch.testing.assert_close(found, (entropy - networks.target_entropy).sum(), rtol=1e-4, atol=1e-4)
    assert found > 0


def test_whatever_can_learn_gets_a_gradient_and_one_number_a_step() -> None:
    networks = cql()
    terms = networks(whole_batch(networks, box_steps([9, 3], [True, False])))
    terms.loss.mean().backward()
    assert all(p.grad is not None for p in networks.parameters() if p.requires_grad)
    assert {term.shape for term in (terms.loss, *terms.metrics.values())} == {(12,)}
    assert not any(term.requires_grad for term in terms.metrics.values())
    networks.zero_grad()
    none = {column: tensor[:0] for column, tensor in whole_batch(networks, box_steps([3], [True])).items()}
    networks(none).loss.sum().backward()
    assert not any(p.grad.any() for p in networks.parameters() if p.requires_grad)


def test_the_actor_climbs_the_critics() -> None:
    """The reward is the action, so the upper bound is best; the actor begins in the middle."""
    steps = box_steps([1] * 64, [True] * 64)
    steps.columns["rewards"] = steps.columns["actions"][:, 0]
    networks = learned(steps, alpha=0.1)
    assert networks.policy.act(np.zeros((1, 3), np.float32)).item() > 2.5


def test_actions_nobody_took_are_not_worth_more_than_those_taken() -> None:
    """Only actions below 0 were taken: without the penalty, what is above them is anybody's guess."""
    steps = box_steps([1] * 64, [True] * 64)
    steps.columns["actions"] = (steps.columns["actions"] - 3) / 4
    steps.columns["rewards"] = steps.columns["actions"][:, 0] * 3  # rising towards where nobody went
    worth = {}
    for alpha in (0.0, 5.0):
        q = learned(steps, alpha=alpha).critics(torch.zeros(1, 3), torch.tensor([[2.5], [-0.5]])).min(dim=0).values
        worth[alpha] = (q[0] - q[1]).item()
    assert worth[5.0] < 0 < worth[0.0]


def learned(steps: Steps, **config: Any) -> ContinuousCQL:
    networks = cql(action_samples=2, **config)
    batch = whole_batch(networks, steps)
    optimizer = torch.optim.Adam([p for p in networks.parameters() if p.requires_grad], lr=0.03)
    torch.manual_seed(0)
    for _ in range(120):
        update(networks, optimizer, batch)
    return networks


@pytest.mark.parametrize("space", [BOX, gym.spaces.Box(-1, 1, (2, 2))], ids=str)
def test_the_loss_is_finite_for_actions_of_any_shape(space: gym.spaces.Box) -> None:
    networks = cql(space)
    steps = made_steps([5], [True])
    steps.columns["actions"] = torch.zeros(6, *space.shape)
    assert networks(whole_batch(networks, steps)).loss.isfinite().all()


def test_actions_without_bounds_are_refused() -> None:
    with pytest.raises(ConfigError, match="needs actions with bounds"):
        make_networks("cql", VECTOR, gym.spaces.Box(-1, np.inf, (1,)))


def test_the_targets_follow_at_their_rate() -> None:
    networks = cql(target_rate=0.25)
    for target, learned in zip(networks.targets.parameters(), networks.critics.parameters(), strict=True):
        target.data.fill_(0.0)
        learned.data.fill_(8.0)
    networks.algorithm.after_update(networks, {})
    assert all((target == 2.0).all() for target in networks.targets.parameters())


def test_the_observation_after_a_termination_says_nothing_of_the_targets() -> None:
    """It only proposes actions to the integral of the penalty, whose value does not depend on who proposes."""
    networks = cql()
    targets = []
    for after in (0.0, 5.0):
        steps = box_steps([9, 3, 4], [True, False, True])
        steps.columns["obs"][steps.last[[0, 2]]] += after
        torch.manual_seed(0)
        targets.append(networks(whole_batch(networks, steps)).metrics["target_q"])
    assert torch.equal(*targets)
