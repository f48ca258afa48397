"""IQL: three losses that do not touch each other, the expectile, the critics' targets."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from offline_core.learning.algorithms.iql import IQL, expectile_loss
from offline_core.learning.algorithms.networks import Networks
from offline_core.policies.config import NetworkConfig
from tests.learning.algorithms.by_hand import q_of
from tests.learning.algorithms.making import VECTOR, made_steps, update, whole_batch

TWO = gym.spaces.Discrete(2)
SMALL = NetworkConfig(hidden_sizes=[8])


def iql(*, seed: int = 0, **config: Any) -> IQL:
    networks = Networks(IQL(**config), VECTOR, TWO, SMALL, seed=seed)
    with torch.no_grad():
        for critics in (networks.critics, networks.targets):
            for parameter in critics.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel())) * 0.3)
    return networks


def test_each_step_by_the_papers_equations() -> None:
    networks = iql(beta=2.0, expectile=0.8, gamma=0.9, max_weight=1.5)
    steps = made_steps([6, 1, 5], [True, False, False])
    batch = whole_batch(networks, steps)
    terms = networks(batch)
    rows = steps.rows
    with torch.no_grad():
        obs, actions = steps.columns["obs"], steps.columns["actions"]
        one_hot = torch.nn.functional.one_hot(actions[rows], 2).float()
        q = q_of(networks.targets, obs[rows], one_hot).min(dim=0).values
        learned = q_of(networks.critics, obs[rows], one_hot)
        values = networks.policy.values(obs).double()
        log_probs = networks.policy(obs[rows]).log_softmax(dim=1).gather(1, actions[rows, None]).squeeze(1).double()
        terminated = steps.columns["terminateds"][rows]
        wanted = steps.columns["rewards"][rows] + 0.9 * torch.where(terminated, 0.0, values[rows + 1])
        u = q - values[rows]
        value_loss = torch.where(u < 0, 0.2, 0.8) * u**2
        critic_loss = ((learned - wanted) ** 2).sum(dim=0)
        weights = torch.exp(2.0 * u).clamp(max=1.5)
        assert (weights == 1.5).any() and (weights < 1.5).any()
        policy_loss = -weights * log_probs
    expected = {"value_loss": value_loss, "critic_loss": critic_loss, "policy_loss": policy_loss, "q": q, "weight": weights}
    for name, term in expected.items():
        torch.testing.assert_close(terms.metrics[name].double(), term, rtol=1e-4, atol=1e-5, msg=name)
    torch.testing.assert_close(terms.loss.double(), value_loss + critic_loss + policy_loss, rtol=1e-4, atol=1e-5)


def test_no_loss_teaches_anothers_networks() -> None:
    """The gradients of the sum are those of each loss by itself."""
    networks = iql()
    batch = whole_batch(networks, made_steps([9, 9], [True, False]))
    networks(batch).loss.sum().backward()
    found = {name: parameter.grad.clone() for name, parameter in networks.named_parameters() if parameter.requires_grad}
    networks.zero_grad()

    metrics = networks(batch).metrics
    inputs, values = networks.policy.inputs_and_values(batch["obs"])
    log_probs = networks.policy.head.log_prob(inputs, batch["actions"])
    policy = (-metrics["weight"] * log_probs).sum()
    value = expectile_loss(metrics["q"] - values, 0.7).sum()
    with torch.no_grad():
        wanted = batch["n_step_rewards"] + batch["n_step_discounts"] * networks.policy.values(batch["new_obs"])
    critics = (networks.critics(batch["obs"], batch["actions"]) - wanted).square().sum()
    for loss, parts in ((policy, ("policy.hidden", "policy._head")), (value, ("policy.value",)), (critics, ("critics",))):
        names = [name for name in found if name.startswith(parts)]
        parameters = [networks.get_parameter(name) for name in names]
        for name, gradient in zip(names, torch.autograd.grad(loss, parameters), strict=True):
            torch.testing.assert_close(found.pop(name), gradient.float(), rtol=1e-4, atol=1e-5, msg=name)
    assert not found, "and there is nothing else that learns"


@pytest.mark.parametrize("share_layers", [False, True])
def test_the_value_function_teaches_layers_of_the_policy_only_where_it_shares_them(share_layers: bool) -> None:
    """And the critics never do. Only these two learn with weights of 0 for the policy's loss."""
    networks = Networks(IQL(max_weight=1e-30), VECTOR, TWO, SMALL.model_copy(update={"share_layers": share_layers}))
    batch = whole_batch(networks, made_steps([9, 9], [True, False]))
    learned = list(networks.policy.hidden.parameters())
    networks(batch).loss.sum().backward()
    value_loss = expectile_loss(networks(batch).metrics["q"] - networks.policy.values(batch["obs"]), 0.7).sum()
    wanted = torch.autograd.grad(value_loss, learned, allow_unused=not share_layers)
    for parameter, gradient in zip(learned, wanted, strict=True):
        torch.testing.assert_close(parameter.grad, torch.zeros_like(parameter) if gradient is None else gradient)


def test_critics_see_actions_in_units_of_their_bounds() -> None:
    space = gym.spaces.Tuple(
        [gym.spaces.Box(np.array([0, -np.inf], np.float32), np.array([200, 5], np.float32)), gym.spaces.Discrete(3)]
    )
    critics = Networks(IQL(), VECTOR, space, SMALL).critics
    seen = critics.actions((torch.tensor([[0.0, -50.0], [150.0, 3.0]]), torch.tensor([2, 0])))
    torch.testing.assert_close(seen, torch.tensor([[-1.0, -50.0, 0, 0, 1], [0.5, 3.0, 1, 0, 0]]))


@pytest.mark.parametrize("expectile", [0.1, 0.5, 0.9])
def test_the_least_loss_is_at_the_expectile(expectile: float) -> None:
    """Of 0, 1, …, 10, found by bisection of its definition: τ · Σ(x - m)⁺ = (1 - τ) · Σ(m - x)⁺."""
    x = np.arange(11.0)
    low, high = 0.0, 10.0
    for _ in range(60):
        m = (low + high) / 2
        above = expectile * np.maximum(x - m, 0).sum() > (1 - expectile) * np.maximum(m - x, 0).sum()
        low, high = (m, high) if above else (low, m)
    grid = torch.linspace(0, 10, 10_001, dtype=torch.float64)
    losses = expectile_loss(torch.from_numpy(x)[None] - grid[:, None], expectile).sum(dim=1)
    assert abs(grid[losses.argmin()].item() - m) < 1e-3
    if expectile == 0.5:
        assert m == pytest.approx(5.0)


def test_targets_follow_the_critics() -> None:
    networks = iql(target_rate=0.25)
    before = [parameter.clone() for parameter in networks.targets.parameters()]
    learned = list(networks.critics.parameters())
    with torch.no_grad():
        for parameter in learned:
            parameter.add_(1.0)
    networks.algorithm.after_update(networks, {})
    for target, old, new in zip(networks.targets.parameters(), before, learned, strict=True):
        torch.testing.assert_close(target, 0.75 * old + 0.25 * new)
    assert not any(parameter.requires_grad for parameter in networks.targets.parameters())


def test_the_critics_are_two() -> None:
    networks = Networks(IQL(), VECTOR, TWO, SMALL)
    assert not any(torch.equal(one, other) for one, other in networks.critics.weights)
    values = networks.critics(torch.randn(5, 3), torch.tensor([0, 1, 0, 1, 1]))
    assert values.shape == (2, 5)
    assert not torch.isclose(*values).any()


def test_what_an_action_is_worth_depends_on_where_it_is_taken() -> None:
    """Not a sum of what the state and what the action is worth."""
    critics, obs = iql().critics, torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    difference = critics(obs, torch.ones(50)) - critics(obs, torch.zeros(50))
    assert (difference.std(dim=1) > 0.01).all()


@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.Discrete(3, start=1),
        gym.spaces.MultiDiscrete([2, 4]),
        gym.spaces.Box(-1, 1, (2,)),
        gym.spaces.Box(-1, 1, (2, 2)),
    ],
    ids=str,
)
def test_any_actions_can_be_learned_from(space: gym.Space[Any]) -> None:
    networks = Networks(IQL(), VECTOR, space, SMALL)
    steps = made_steps([20], [True])
    space.seed(0)
    steps.columns["actions"] = torch.from_numpy(np.stack([space.sample() for _ in range(21)]))
    batch = whole_batch(networks, steps)
    update(networks, torch.optim.Adam([p for p in networks.parameters() if p.requires_grad]), batch)
    assert networks(batch).loss.isfinite().all()


def test_the_best_of_the_data_is_found_without_asking_beyond_it() -> None:
    """A bandit with rewards 0 and 1 taken equally often: V is near the better one, and the policy prefers it."""
    steps = made_steps([1] * 64, [True] * 64)
    steps.columns["obs"] = torch.zeros(128, 3)
    steps.columns["rewards"] = steps.columns["actions"].double()
    networks = Networks(IQL(expectile=0.9, beta=3.0, target_rate=0.1), VECTOR, TWO, SMALL)
    batch = whole_batch(networks, steps)
    optimizer = torch.optim.Adam([p for p in networks.parameters() if p.requires_grad], lr=0.03)
    for _ in range(250):
        update(networks, optimizer, batch)
    ones = batch["actions"].double().mean().item()
    expectile = 0.9 * ones / (0.9 * ones + 0.1 * (1 - ones))  # of a coin
    assert abs(networks.policy.values(torch.zeros(1, 3)).item() - expectile) < 0.03
    preferred = networks.policy(torch.zeros(1, 3)).softmax(dim=1)[0, 1].item()
    odds = ones / (1 - ones) * np.exp(3.0)
    assert abs(preferred - odds / (1 + odds)) < 0.02
