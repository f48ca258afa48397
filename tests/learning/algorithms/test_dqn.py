"""DQN: targets at ends of episodes, double and dueling networks, the target network; CQL's penalty."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from offline_core.errors import ConfigError
from offline_core.learning.algorithms.cql import DiscreteCQL
from offline_core.learning.algorithms.dqn import DQN, taken
from offline_core.learning.algorithms.networks import Networks
from offline_core.learning.steps import BatchSpec
from offline_core.policies.config import NetworkConfig
from tests.learning.algorithms.making import LINEAR, VECTOR, made_steps, numpy_of, update, whole_batch

THREE = gym.spaces.Discrete(3)


def dqn(network: NetworkConfig = LINEAR, *, seed: int = 0, **config: Any) -> DQN:
    return Networks(DQN(**config), VECTOR, THREE, network, seed=seed)


def q_of(weights: dict[str, np.ndarray], obs: np.ndarray, *, dueling: bool) -> np.ndarray:
    logits = obs @ weights["_head.logits.weight"].T + weights["_head.logits.bias"]
    if not dueling:
        return logits
    values = obs @ weights["value.weight"].T + weights["value.bias"]
    return values + logits - logits.mean(axis=1, keepdims=True)


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("dueling", [True, False])
def test_the_loss_of_each_step_is_hubers_of_the_temporal_difference(double: bool, dueling: bool) -> None:
    networks, other = (dqn(double=double, dueling=dueling, n_step=1, gamma=0.8, seed=seed) for seed in (1, 2))
    steps = made_steps([6, 1, 5], [True, True, False], actions=3)
    steps.columns["rewards"] *= 2
    batch = whole_batch(networks, steps)
    with torch.no_grad():
        for policy in (networks.policy, other.policy):
            policy._head.logits.weight.mul_(100)  # far apart, so that the choice of an action matters
    networks.target.load_state_dict(other.policy.state_dict())
    terms = networks(batch)

    obs, rows = steps.columns["obs"].double().numpy(), steps.rows.numpy()
    online = q_of(numpy_of(networks.policy), obs, dueling=dueling)
    target = q_of(numpy_of(networks.target), obs, dueling=dueling)
    chosen = (online if double else target)[rows + 1].argmax(axis=1)
    assert (online[rows + 1].argmax(axis=1) != target[rows + 1].argmax(axis=1)).any()
    following = target[rows + 1, chosen] * ~steps.columns["terminateds"].numpy()[rows]
    wanted = steps.columns["rewards"].numpy()[rows] + 0.8 * following
    errors = np.abs(online[rows, steps.columns["actions"].numpy()[rows]] - wanted)
    assert 0 < (errors < 1).sum() < len(rows), "both parts of Huber's loss"
    expected = np.where(errors < 1, 0.5 * errors**2, errors - 0.5)
    np.testing.assert_allclose(terms.loss.detach().numpy(), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(terms.metrics["td_error"], errors, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(terms.metrics["target_q"], wanted, rtol=1e-4, atol=1e-5)


def test_several_steps_end_with_the_episode() -> None:
    """Three steps at most; the discount is that of the steps there were, and 0 only after a termination."""
    networks = dqn(n_step=3, gamma=0.5)
    steps = made_steps([4, 2], [True, False])
    steps.columns["rewards"] = torch.tensor([1.0, 2.0, 4.0, 8.0, 99.0, 16.0, 32.0, 99.0])
    batch = whole_batch(networks, steps)
    assert batch["n_step_rewards"].tolist() == [1 + 1 + 1, 2 + 2 + 2, 4 + 4, 8, 16 + 16, 32]
    assert batch["n_step_discounts"].tolist() == [0.125, 0, 0, 0, 0.25, 0.5]
    rows = steps.rows + torch.tensor([3, 3, 2, 1, 2, 1])
    assert torch.equal(batch["new_obs"], steps.columns["obs"][rows])


def test_the_bootstrapped_value_teaches_nothing() -> None:
    networks = dqn(gamma=0.5)
    batch = whole_batch(networks, made_steps([5, 5], [False, True], actions=3))
    networks(batch).loss.sum().backward()
    gradients = {name: parameter.grad.clone() for name, parameter in networks.policy.named_parameters()}
    networks.zero_grad()
    q = networks.algorithm.q(networks.policy, batch["obs"]).gather(1, batch["actions"][:, None]).squeeze(1)
    torch.nn.functional.huber_loss(q, networks(batch).metrics["target_q"], reduction="sum").backward()
    for name, parameter in networks.policy.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name])
    assert all(parameter.grad is None for parameter in networks.target.parameters())


def test_the_target_network_is_replaced_every_so_many_updates() -> None:
    networks = dqn(NetworkConfig(hidden_sizes=[4]), target_network_interval_updates=3)
    batch = whole_batch(networks, made_steps([20], [True], actions=3))
    optimizer = torch.optim.Adam([p for p in networks.parameters() if p.requires_grad], lr=0.1)

    def same() -> bool:
        ours, theirs = networks.policy.state_dict(), networks.target.state_dict()
        return all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())

    assert same()
    found = []
    for _ in range(7):
        update(networks, optimizer, batch)
        found.append(same())
    assert found == [False, False, True, False, False, True, False]
    resumed = dqn(NetworkConfig(hidden_sizes=[4]), target_network_interval_updates=3)
    resumed.load_state_dict(networks.state_dict())
    resumed.updates = 7
    resumed.algorithm.before_update(resumed)
    resumed.algorithm.prepare(resumed, made_steps([20], [True], actions=3), BatchSpec(resumed.algorithm.batch_columns))
    for name, tensor in networks.target.state_dict().items():
        assert torch.equal(tensor, resumed.target.state_dict()[name]), "the old network came along"


def test_the_target_network_begins_with_what_the_policy_was_given_before_the_first_update() -> None:
    """A filter's statistics, say, or the weights of another training."""
    networks = Networks(DQN(), VECTOR, THREE, NetworkConfig(normalize_observations=True))
    networks.policy.encoder.update_statistics(torch.randn(50, 3) * 7 + 3)
    whole_batch(networks, made_steps([5], [True], actions=3))
    assert torch.equal(networks.target.encoder.mean, networks.policy.encoder.mean)


def test_the_greedy_action_of_the_policy_is_worth_most() -> None:
    networks = dqn(NetworkConfig(hidden_sizes=[8]), seed=4)
    obs = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32)
    with torch.no_grad():
        best = networks.algorithm.q(networks.policy, torch.from_numpy(obs)).argmax(dim=1)
    assert networks.policy.act(obs).tolist() == best.tolist()
    assert len(best.unique()) > 1


def test_values_of_a_small_world_are_found() -> None:
    """Two states one after the other, the second terminal after a reward of its action: Q is known."""
    first, second = [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]
    steps = made_steps([2] * 6, [True] * 6, actions=3)
    steps.columns["obs"] = torch.tensor([first, second, [0.0, 0.0, 1.0]] * 6)
    steps.columns["actions"] = torch.tensor([0, 0, -9, 0, 1, -9, 0, 2, -9, 1, 0, -9, 1, 1, -9, 2, 2, -9])
    steps.columns["rewards"] = torch.where(steps.columns["obs"][:, 1] > 0, steps.columns["actions"].double(), 0.0)
    networks = dqn(n_step=1, gamma=0.9, target_network_interval_updates=20)
    batch = whole_batch(networks, steps)
    optimizer = torch.optim.Adam([p for p in networks.parameters() if p.requires_grad], lr=0.05)
    for _ in range(500):
        update(networks, optimizer, batch)
    with torch.no_grad():
        found = networks.algorithm.q(networks.policy, torch.tensor([first, second]))
    torch.testing.assert_close(found, torch.tensor([[1.8, 1.8, 1.8], [0.0, 1.0, 2.0]]), rtol=0.02, atol=0.02)


@pytest.mark.parametrize(
    "space", [gym.spaces.Discrete(3, start=2), gym.spaces.MultiDiscrete([3]), gym.spaces.MultiBinary(1)], ids=str
)
def test_one_list_of_actions_however_the_space_calls_it(space: gym.Space[Any]) -> None:
    networks = Networks(DQN(), VECTOR, space, LINEAR)
    space.seed(0)
    actions = [space.sample() for _ in range(50)]
    found = taken(networks, {"actions": torch.from_numpy(np.stack(actions))}, torch.arange(3).expand(50, 3)).tolist()
    assert found == [int(np.ravel(action)[0]) - (2 if isinstance(space, gym.spaces.Discrete) else 0) for action in actions]


@pytest.mark.parametrize("algorithm", [DQN, DiscreteCQL])
@pytest.mark.parametrize(
    "space",
    [gym.spaces.Box(-1, 1, (1,)), gym.spaces.MultiDiscrete([2, 2]), gym.spaces.Tuple([gym.spaces.Discrete(2)])],
    ids=str,
)
def test_other_actions_are_refused(algorithm: type[DQN], space: gym.Space[Any]) -> None:
    with pytest.raises(ConfigError, match=rf"{algorithm.__name__} .*cannot act in {type(space).__name__}"):
        Networks(algorithm(), VECTOR, space)


def test_cql_adds_how_far_all_actions_are_above_the_one_taken() -> None:
    penalised = Networks(DiscreteCQL(alpha=0.3), VECTOR, THREE, LINEAR, seed=1)
    plain = dqn(seed=1, n_step=1)
    with torch.no_grad():
        for networks in (penalised, plain):
            networks.policy._head.logits.weight.mul_(100)
    steps = made_steps([6, 5], [True, False], actions=3)
    terms, expected = (networks(whole_batch(networks, steps)) for networks in (penalised, plain))
    q = q_of(numpy_of(penalised.policy), steps.columns["obs"].double().numpy()[steps.rows], dueling=True)
    taken = q[np.arange(len(q)), steps.columns["actions"].numpy()[steps.rows]]
    penalty = 0.3 * (np.log(np.exp(q).sum(axis=1)) - taken)
    np.testing.assert_allclose((terms.loss - expected.loss).detach().numpy(), penalty, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(terms.metrics["penalty"], penalty, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(terms.metrics["td_loss"], expected.loss.detach(), rtol=1e-4, atol=1e-5)


def test_cql_keeps_actions_that_nobody_took_below_the_others() -> None:
    """Action 2 is never taken; without the penalty nothing says what it is worth."""
    steps = made_steps([1] * 200, [True] * 200, actions=2)
    steps.columns["rewards"] = torch.zeros(400)
    networks = Networks(DiscreteCQL(alpha=1.0), VECTOR, THREE, LINEAR)
    batch = whole_batch(networks, steps)
    optimizer = torch.optim.Adam([p for p in networks.parameters() if p.requires_grad], lr=0.05)
    for _ in range(100):
        update(networks, optimizer, batch)
    with torch.no_grad():
        q = networks.algorithm.q(networks.policy, batch["obs"])
    assert (q[:, 2] < q[:, :2].min(dim=1).values).all()
