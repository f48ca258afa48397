"""PPO: what the learner computes is what the player did, normalised or clipped; advantages against a plain loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from offline_core.data.episodes import columns
from offline_core.errors import ConfigError
from offline_core.learning.algorithms.algorithm import Algorithm
from offline_core.learning.algorithms.bc import BC
from offline_core.learning.algorithms.networks import Networks
from offline_core.learning.algorithms.ppo import ADVANTAGES, LOG_PROBS, PPO, VALUE_TARGETS, VALUES
from offline_core.learning.experts.config import ExpertConfig
from offline_core.learning.experts.train import train_expert
from offline_core.learning.learner import Learner
from offline_core.learning.returns import steps_left, value_targets
from offline_core.learning.steps import Batch, Steps
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.config import NetworkConfig
from offline_core.policies.initial import check_network
from offline_core.runtime.config import parse
from tests.learning.play.rollouts import SPEC, ppo_in


def played(env_id: str, *, normalize_observations: bool = False, **parameters: Any) -> tuple[Networks, Steps]:
    """A new PPO and what its policy did next, prepared, after it had seen some of the environment."""
    network = NetworkConfig(hidden_sizes=[16], normalize_observations=normalize_observations)
    networks, [before, rollout] = ppo_in(env_id, 20, 50, network=network, **parameters)
    networks.policy.encoder.update_statistics(before.columns[columns.OBS])
    networks.algorithm.prepare(networks, rollout, SPEC)
    return networks, rollout


def whole(steps: Steps) -> Batch:
    """All steps as one batch."""
    return steps.batch(steps.rows, SPEC)


def learned(networks: Networks, steps: Steps, **optimizer: Any) -> Learner:
    """Learn once from a rollout."""
    config = parse(ExpertConfig, {"optimizer": {"learning_rate": 0.01, "batch_size": 64} | optimizer})
    learner = Learner(networks, config, total_steps=10**6)
    learner.load(steps)
    for epoch in range(networks.algorithm.num_epochs):
        for _, batch in learner.batches(epoch):
            assert learner.update(batch.indices, batch)
    return learner


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize("normalize_observations", [False, True])
def test_before_it_learns_the_policy_is_the_one_that_played(env_id: str, normalize_observations: bool) -> None:
    networks, rollout = played(env_id, normalize_observations=normalize_observations, gamma=0.9, gae_lambda=0.9)
    batch = whole(rollout)
    metrics = networks(batch).metrics
    assert metrics["approx_kl"].abs().max() < 1e-5
    assert metrics["policy_loss"].mean().item() == pytest.approx(0, abs=1e-5)  # of advantages with mean 0, all at ratio 1
    with torch.no_grad():
        inputs = networks.policy(batch[columns.OBS])
        assert torch.allclose(batch[LOG_PROBS], networks.policy.head.log_prob(inputs, batch[columns.ACTIONS]), atol=1e-5)
    assert batch[ADVANTAGES].mean().item() == pytest.approx(0, abs=1e-5)
    assert batch[ADVANTAGES].std(correction=0).item() == pytest.approx(1, abs=1e-5)


def test_actions_at_a_bound_are_there_and_have_a_finite_probability() -> None:
    networks, rollout = played("Pendulum-v1")
    batch = whole(rollout)
    at_bound = batch[columns.ACTIONS].abs().squeeze(-1) == networks.policy.action_space.high.item()  # type: ignore[attr-defined]
    assert at_bound.any() and not at_bound.all()
    assert batch[LOG_PROBS].isfinite().all()


def test_an_update_leaves_the_statistics_alone_and_lowers_the_loss_of_the_value_function() -> None:
    networks, rollout = played("CartPole-v1", normalize_observations=True, gamma=0.9, gae_lambda=0.9)
    statistics = {name: tensor.clone() for name, tensor in networks.policy.encoder.state_dict().items()}
    before = networks(whole(rollout)).metrics["value_loss"].mean()
    learned(networks, rollout)
    assert networks(whole(rollout)).metrics["value_loss"].mean() < before
    assert all(torch.equal(tensor, statistics[name]) for name, tensor in networks.policy.encoder.state_dict().items())


def test_all_parameters_learn() -> None:
    networks, rollout = played("Pendulum-v1")
    before = {name: tensor.clone() for name, tensor in networks.state_dict().items()}
    learned(networks, rollout)
    changed = {name for name, tensor in networks.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {name for name, _ in networks.named_parameters()}


@pytest.mark.parametrize("share_layers", [False, True])
def test_a_new_value_function_learns_from_the_first_rollout_and_the_policy_does_not(share_layers: bool) -> None:
    network = NetworkConfig(share_layers=share_layers)
    networks, [rollout, other] = ppo_in("CartPole-v1", 64, 64, copies=20, network=network, gae_lambda=1.0, gamma=0.9)
    networks.has_new_values = True
    before = {name: tensor.clone() for name, tensor in networks.policy.state_dict().items()}
    learner = learned(networks, rollout, learning_rate=0.02, batch_size=1_280)
    first = (rollout.columns[VALUES] - rollout.columns[VALUE_TARGETS])[rollout.rows].square().mean()
    for epoch in range(10, 40):
        for _, batch in learner.batches(epoch):
            learner.update(batch.indices, batch)
    last = networks(whole(rollout)).metrics["value_loss"].mean()
    assert last < first * (0.9 if share_layers else 0.4)  # the policy's layers are not for it
    for name, tensor in networks.policy.state_dict().items():
        assert torch.equal(tensor, before[name]) is not name.startswith("value"), name
    learner.load(other)
    for _, batch in learner.batches():
        learner.update(batch.indices, batch)
    changed = {name for name, tensor in networks.policy.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {name for name, _ in networks.policy.named_parameters()}, "then both learn"


def test_a_value_is_worth_no_more_for_going_further_than_the_clip() -> None:
    networks, rollout = played("CartPole-v1", value_clip_range=0.2)
    policy = networks.policy
    plain = Networks(PPO(), policy.observation_space, policy.action_space, policy.network)
    plain.load_state_dict(networks.state_dict())
    batch = whole(rollout)
    values = networks.policy.values(batch[columns.OBS]).detach()
    for old, returns, loss in [(-0.5, 0.0, 0.3**2), (-0.5, 1.0, 1.3**2), (0.1, 0.3, 0.3**2)]:
        # The value is 0 once it is subtracted: 0.5 above the old one, which may move by 0.2 to -0.3.
        other = batch | {VALUES: values + old, VALUE_TARGETS: values + returns}
        assert networks(other).metrics["value_loss"].mean().item() == pytest.approx(loss, rel=1e-3)
        assert plain(other).metrics["value_loss"].mean().item() == pytest.approx(returns**2, abs=1e-4)


def gae(rewards: Any, values: Any, terminated: Any, ends: Any, *, gamma: float, gae_lambda: float) -> np.ndarray:
    """Advantages (T, N) of T steps of N copies, as rows of episodes: `values` are (T + 1, N), `ends` say where one ends."""
    rewards, values, terminated, ends = (
        np.asarray(each).reshape(len(each), -1) for each in (rewards, values, terminated, ends)
    )
    steps, copies = rewards.shape
    begins = np.ones((steps + 1, copies), bool)
    begins[1:] = np.vstack([np.zeros((1, copies), bool), ends[:-1]])  # the row after a step that ended only resets
    offsets = np.append(np.flatnonzero(begins.T), begins.size)
    flat = {name: np.vstack([each, np.zeros((1, copies))]).T.ravel() for name, each in (("r", rewards), ("d", terminated))}
    as_steps = Steps({}, torch.from_numpy(offsets), has_last=True)
    of_rows = torch.from_numpy(values.T.ravel())
    targets = value_targets(
        torch.from_numpy(flat["r"]),
        of_rows,
        steps_left(as_steps),
        terminated=torch.from_numpy(flat["d"].astype(bool)),
        gamma=gamma,
        gae_lambda=gae_lambda,
    )
    advantages: np.ndarray = (targets - of_rows).numpy().reshape(copies, steps + 1).T[:-1]
    return advantages


def test_termination_is_worth_nothing_afterwards() -> None:
    found = gae([1.0, 1.0], [5.0, 7.0, 100.0], [False, True], [False, True], gamma=0.5, gae_lambda=1.0)
    # t=1: 1 - 7 = -6; t=0: 1 + 0.5*7 - 5 = -0.5, plus 0.5 * -6
    np.testing.assert_allclose(found.ravel(), [-3.5, -6.0])


def test_truncation_is_worth_the_observation_it_stopped_at() -> None:
    found = gae([1.0, 1.0], [5.0, 7.0, 100.0], [False, False], [False, True], gamma=0.5, gae_lambda=1.0)
    np.testing.assert_allclose(found.ravel(), [-0.5 + 0.5 * 44.0, 1 + 50 - 7])


@pytest.mark.parametrize("gae_lambda", [0.0, 0.7, 1.0])
def test_a_plain_loop_says_the_same_for_each_copy_by_itself(gae_lambda: float) -> None:
    """A step after an end only resets its copy: whatever stands there, it changes nothing."""
    rng = np.random.default_rng(0)
    steps, copies, gamma = 40, 6, 0.97
    rewards, values = rng.normal(size=(steps, copies)), rng.normal(size=(steps + 1, copies))
    terminated, truncated = rng.random((2, steps, copies)) < 0.1
    is_step = np.ones((steps, copies), bool)
    for t in range(1, steps):
        is_step[t] = ~(is_step[t - 1] & (terminated | truncated)[t - 1])
    terminated &= is_step
    ends = (terminated | truncated) & is_step
    expected = np.zeros((steps, copies))
    for copy in range(copies):
        for t in np.flatnonzero(is_step[:, copy]):
            weight = 1.0
            for k in range(t, steps):
                following = 0.0 if terminated[k, copy] else values[k + 1, copy]
                expected[t, copy] += weight * (rewards[k, copy] + gamma * following - values[k, copy])
                if ends[k, copy]:
                    break
                weight *= gamma * gae_lambda
    found = gae(rewards, values, terminated, ends, gamma=gamma, gae_lambda=gae_lambda)
    np.testing.assert_allclose(found[is_step], expected[is_step], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("space", [spaces.Discrete(3, start=5), spaces.MultiDiscrete([2, 3], start=[4, 1])], ids=str)
def test_actions_may_begin_anywhere(space: spaces.Space[Any]) -> None:
    """Also the newest row of a copy, which has no action yet."""
    networks = Networks(PPO(), spaces.Box(-1, 1, (2,)), space, NetworkConfig(hidden_sizes=[8]))
    space.seed(0)
    actions = torch.from_numpy(
        np.stack([*(np.asarray(space.sample()) for _ in range(4)), np.zeros(space.shape or (), np.int64)])
    )
    flat = {columns.OBS: torch.zeros(5, 2), columns.ACTIONS: actions, columns.REWARDS: torch.ones(5)}
    rollout = Steps(flat | {columns.TERMINATEDS: torch.zeros(5, dtype=torch.bool)}, torch.tensor([0, 5]), has_last=True)
    networks.algorithm.prepare(networks, rollout, SPEC)
    assert networks(whole(rollout)).loss.isfinite().all()


def test_composite_actions_are_refused() -> None:
    with pytest.raises(Exception, match="Dict or Tuple actions"):
        Networks(PPO(), spaces.Box(-1, 1, (2,)), spaces.Dict({"a": spaces.Discrete(2)}))


def test_statistics_travel_with_the_checkpoint(tmp_path: Path) -> None:
    config = ExpertConfig(
        network=NetworkConfig(hidden_sizes=[8], normalize_observations=True),
        num_envs=4,
        rollout_steps=32,
        total_steps=300,
        rollouts_per_iteration=3,
        evaluation={"episodes": 2},
    )
    encoder = load_policy(train_expert(config, output=str(tmp_path)).checkpoint).encoder
    assert encoder.count == 2 * 33 * 4  # of the rollouts before the one that was learned from last
    assert (encoder.variance > 0).all()


@pytest.mark.parametrize("image", [False, True])
@pytest.mark.parametrize(
    ("algorithm", "asked", "is_orthogonal"),
    [(PPO(), None, True), (PPO(), False, False), (BC(), None, False), (BC(), True, True)],
)
def test_policies_of_ppo_alone_begin_with_orthogonal_weights(
    algorithm: Algorithm, asked: bool | None, is_orthogonal: bool, image: bool
) -> None:
    space = spaces.Box(0, 255, (8, 8, 3), np.uint8) if image else spaces.Box(-1, 1, (32,))
    network = NetworkConfig(hidden_sizes=[16], orthogonal_weights=asked)
    networks = Networks(algorithm, space, spaces.Discrete(2), network)
    layers = [module for module in networks.policy.hidden.modules() if isinstance(module, (torch.nn.Linear, torch.nn.Conv2d))]
    assert len(layers) == (3 if image else 1)
    for layer in layers:
        weights = layer.weight.flatten(1)
        if is_orthogonal:
            least = min(weights, weights.T, key=len)
            torch.testing.assert_close(least @ least.T, 2 * torch.eye(len(least)), atol=1e-5, rtol=0)
            assert not layer.bias.any()
        else:
            assert 0.9 < max(weights.abs().max(), layer.bias.abs().max()) * weights.shape[1] ** 0.5 <= 1


def test_a_policy_begins_with_weights_of_another_algorithm_however_those_began() -> None:
    check_network("first", NetworkConfig(orthogonal_weights=True), NetworkConfig())
    with pytest.raises(ConfigError, match="recurrent_units is 8 there and 64 here"):
        check_network("first", NetworkConfig(orthogonal_weights=True, recurrent_units=8), NetworkConfig())
