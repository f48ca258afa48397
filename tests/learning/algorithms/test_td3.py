"""TD3, and TD3+BC and ReBRAC, which are TD3 kept near the data: losses by hand, noise, updates without the policy."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import pytest
import torch

from offline_core.errors import ConfigError
from offline_core.learning.algorithms.rebrac import HAS_NEW_ACTIONS, NEW_ACTIONS, ReBRAC
from offline_core.learning.algorithms.registry import algorithms
from offline_core.learning.algorithms.td3 import TD3
from offline_core.learning.config import TrainingConfig
from offline_core.learning.learner import Learner
from offline_core.policies.config import NetworkConfig
from offline_core.runtime.config import parse
from tests.learning.algorithms.by_hand import HALF_RANGE, check, following, mean_of, q_of, scaled, spread
from tests.learning.algorithms.making import BOX, VECTOR, made_steps, make_networks, whole_batch, with_box_actions

SMALL = NetworkConfig(hidden_sizes=[8])
LENGTHS, TERMINATED = [6, 1, 5], [True, False, False]


def td3(name: str = "td3", **config: Any) -> Any:
    kind = algorithms()[name]
    return make_networks(name, VECTOR, BOX, SMALL, kind(**config))


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("td3", {}),
        ("td3_bc", {"alpha": 1.5}),
        ("rebrac", {"policy_penalty": 0.3, "critic_penalty": 0.7, "critics": {"layer_norm": True}}),
        ("rebrac", {"policy_penalty": 0.3, "critic_penalty": 0.7, "normalize_values": False, "n_step": 2}),
    ],
    ids=["td3", "td3_bc", "rebrac", "rebrac of two steps"],
)
def test_each_step_by_the_papers_equations(name: str, config: dict[str, Any]) -> None:
    networks = td3(name, gamma=0.9, **config)
    steps = with_box_actions(made_steps(LENGTHS, TERMINATED))
    batch = whole_batch(networks, steps)
    spread(networks)
    networks.updates = 1
    networks.algorithm.before_update(networks)
    torch.manual_seed(0)
    output = networks(batch)

    torch.manual_seed(0)
    obs, actions, rows = steps.columns["obs"], scaled(steps.columns["actions"]), steps.rows
    after = following(steps, LENGTHS, TERMINATED, gamma=0.9, n_step=config.get("n_step", 1))
    with torch.no_grad():
        noise = (0.2 * torch.randn(len(rows), 2).double()).clamp(-0.5, 0.5)
        new_actions = (torch.tanh(mean_of(networks.target_policy, obs[after.rows])) + noise).clamp(-1, 1)
        values = q_of(networks.targets, obs[after.rows], new_actions).min(dim=0).values
        if name == "rebrac":
            values -= 0.7 * torch.where(after.has_action, ((new_actions - actions[after.rows]) ** 2).sum(dim=1), 0.0)
        target = after.rewards + after.discounts * values
        learned = q_of(networks.critics, obs[rows], actions[rows])
        mode = torch.tanh(mean_of(networks.policy, obs[rows]))
        climbed = q_of(networks.critics, obs[rows], mode)
        distances = (mode - actions[rows]) ** 2
        smallest = climbed.min(dim=0).values
        policy_loss = {
            "td3": -climbed[0],
            "td3_bc": distances.mean(dim=1) - 1.5 / climbed[0].abs().mean() * climbed[0],
            "rebrac": 0.3 * distances.sum(dim=1)
            - smallest / (smallest.abs().mean() if config.get("normalize_values", True) else 1),
        }[name]
    critic_loss = ((learned - target) ** 2).sum(dim=0)
    expected = {"critic_loss": critic_loss, "policy_loss": policy_loss, "target_q": target, "q": learned.min(dim=0).values}
    check(output, expected, critic_loss + policy_loss)
    torch.testing.assert_close(output.errors.double(), (learned - target).abs().mean(dim=0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["td3", "td3_bc", "rebrac"])
def test_no_loss_teaches_anothers_networks(name: str) -> None:
    """The critics learn the same in an update of the policy and in another one."""
    networks = spread(td3(name))
    batch = whole_batch(networks, with_box_actions(made_steps(LENGTHS, TERMINATED)))
    gradients = []
    for number in range(2):
        networks.zero_grad()
        networks.updates = number
        networks.algorithm.before_update(networks)
        torch.manual_seed(0)
        networks(batch).loss.sum().backward()
        gradients.append({name: p.grad.clone() for name, p in networks.named_parameters() if p.grad is not None})
    assert {name.partition(".")[0] for name in gradients[0]} == {"critics"}
    assert {name.partition(".")[0] for name in gradients[1]} == {"critics", "policy"}
    for parameter, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][parameter], gradient)


def test_an_update_without_the_policy_leaves_it_its_targets_and_what_adam_knows_of_it() -> None:
    """Adam goes on by its momentum where a gradient is 0 and not None."""
    config = parse(TrainingConfig, {"algorithm": "td3_bc", "network": {"hidden_sizes": [8]}})
    learner = Learner(td3("td3_bc", policy_interval_updates=3), config, total_steps=100)
    learner.load(with_box_actions(made_steps([40], [True])))
    networks = learner.networks
    slow = [*networks.policy.parameters(), *networks.target_policy.parameters(), *networks.targets.parameters()]
    seen = []
    for _ in range(7):
        before = [parameter.clone() for parameter in (*slow, *networks.critics.parameters())]
        learner.update(learner.indices())
        same = [torch.equal(*pair) for pair in zip(before, (*slow, *networks.critics.parameters()), strict=True)]
        assert not any(same[len(slow) :])
        seen.append(all(same[: len(slow)]))
    assert seen == [True, True, False, True, True, False, True]
    steps_of = {
        name: int(learner.optimizer.state[p]["step"]) for name, p in networks.named_parameters() if p in learner.optimizer.state
    }
    assert {count for name, count in steps_of.items() if name.startswith("critics")} == {7}
    assert {count for name, count in steps_of.items() if name.startswith("policy")} == {2}


def test_targets_follow_at_their_rate() -> None:
    networks = spread(td3(target_rate=0.25))
    networks.updates = 1
    networks.algorithm.before_update(networks)
    pairs = [(networks.targets, networks.critics), (networks.target_policy, networks.policy)]
    before = [[parameter.clone() for parameter in target.parameters()] for target, _ in pairs]
    networks.algorithm.after_update(networks, {})
    for (target, learned), old in zip(pairs, before, strict=True):
        for found, was, new in zip(target.parameters(), old, learned.parameters(), strict=True):
            torch.testing.assert_close(found, 0.75 * was + 0.25 * new)


def test_the_noise_of_next_actions_is_clipped_and_so_are_they() -> None:
    networks = td3(target_noise=0.2, target_noise_limit=0.3)
    batch = whole_batch(networks, with_box_actions(made_steps([4000], [True])))
    torch.manual_seed(0)
    actions = networks.algorithm.new_actions(networks, batch)
    noise = scaled(actions) - torch.tanh(mean_of(networks.target_policy, batch["new_obs"]))
    assert noise.abs().max().item() == pytest.approx(0.3, abs=1e-5)
    assert (noise.abs() > 0.2999).double().mean().item() == pytest.approx(0.1336, abs=0.02), "beyond 1.5 standard deviations"
    inside = noise[noise.abs() < 0.2999]
    assert inside.std().item() == pytest.approx(0.2 * 0.7426, abs=0.005), "of a normal that is cut off there"
    with torch.no_grad():
        networks.target_policy.head.mean.bias.fill_(9.0)
    actions = networks.algorithm.new_actions(networks, batch)
    assert actions.max() == 3.0 and actions.min() > 3.0 - 0.31 * HALF_RANGE


def test_exploration_is_noise_around_the_action() -> None:
    policy = td3(exploration_noise=0.1).policy
    obs = torch.zeros(4000, 3)
    drawn = policy.head.sample(policy(obs), torch.Generator().manual_seed(0))
    assert drawn.std(dim=0).tolist() == pytest.approx([0.1 * HALF_RANGE] * 2, rel=0.05)
    torch.testing.assert_close(drawn.mean(dim=0), policy.head.mode(policy(obs[:1]))[0], atol=0.01 * float(HALF_RANGE), rtol=0)


@pytest.mark.parametrize("n_step", [1, 3])
def test_the_next_action_is_that_of_the_step_that_follows_if_there_is_one(n_step: int) -> None:
    """After the last step of an episode no action was taken, whether it was terminated or cut off."""
    networks = td3("rebrac", n_step=n_step)
    assert isinstance(networks.algorithm, ReBRAC)
    steps = with_box_actions(made_steps(LENGTHS, TERMINATED))
    actions = steps.columns["actions"]
    batch = whole_batch(networks, steps)
    after = following(steps, LENGTHS, TERMINATED, gamma=0.9, n_step=n_step)
    assert batch[HAS_NEW_ACTIONS].tolist() == after.has_action.tolist()
    assert torch.equal(batch[NEW_ACTIONS], actions[after.rows])
    assert torch.equal(batch["new_obs"], steps.columns["obs"][after.rows])


def test_what_stands_where_no_action_was_taken_is_of_no_account() -> None:
    losses = []
    for filler in (0.0, float("nan")):
        networks = td3("rebrac", critic_penalty=5.0)
        steps = with_box_actions(made_steps(LENGTHS, TERMINATED))
        steps.columns["actions"][steps.last] = filler
        torch.manual_seed(0)
        losses.append(networks(whole_batch(networks, steps)).loss)
    assert torch.equal(*losses) and losses[0].isfinite().all()


def test_all_losses_are_there_when_a_held_out_loss_is_asked_for() -> None:
    """Else it would jump with the number of updates before it."""
    networks = td3("td3_bc")
    batch = whole_batch(networks, with_box_actions(made_steps([9], [True])))
    for number in range(2):
        networks.updates = number
        networks.algorithm.before_update(networks)
        assert "policy_loss" in networks.eval()(batch).metrics


@pytest.mark.parametrize("name", ["td3", "td3_bc", "rebrac"])
@pytest.mark.parametrize("space", [gym.spaces.Discrete(2), gym.spaces.Box(-1, float("inf"), (1,))], ids=str)
def test_actions_that_cannot_be_bounded_are_refused(name: str, space: gym.Space[Any]) -> None:
    with pytest.raises(ConfigError, match=r"chooses continuous actions|needs actions with bounds"):
        make_networks(name, VECTOR, space)


def test_the_action_climbs_the_critics() -> None:
    """The reward is the action, so the upper bound is best; TD3 begins in the middle."""
    steps = with_box_actions(made_steps([1] * 64, [True] * 64))
    steps.columns["rewards"] = steps.columns["actions"][:, 0].double()
    networks = td3(policy_interval_updates=1)
    assert isinstance(networks.algorithm, TD3)
    batch = whole_batch(networks, steps)
    optimizer = torch.optim.Adam([p for p in networks.parameters() if p.requires_grad], lr=0.03)
    for _ in range(100):
        networks.algorithm.before_update(networks)
        optimizer.zero_grad()
        networks(batch).loss.mean().backward()
        optimizer.step()
    assert networks.policy.act(batch["obs"].numpy())[:, 0].mean() > 2.5
