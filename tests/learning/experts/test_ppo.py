"""The update: what the learner computes is what the player did, normalised or clipped."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from offline_core.data.environments.vector_env import make_vector_env
from offline_core.learning.experts.config import ExpertConfig, PPOConfig
from offline_core.learning.experts.ppo import PPO, FlatParameters, make_batch, ppo_losses
from offline_core.learning.experts.rollout import Rollout
from offline_core.learning.experts.train import train_expert
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy
from offline_core.runtime.config import EnvironmentSpec
from tests.learning.experts.loops import loop_of


def played(env_id: str, *, normalize_observations: bool = False) -> tuple[Policy, Rollout]:
    """A new policy and what it did next, after it had seen some of the environment."""
    env = make_vector_env(EnvironmentSpec(id=env_id), 8)
    network = NetworkConfig(hidden_sizes=[16], normalize_observations=normalize_observations)
    policy = Policy(env.single_observation_space, env.single_action_space, network, value_function=True)
    loop = loop_of(env, policy)
    policy.encoder.update_statistics(Rollout.of(loop.take(20)).flat_observations)
    rollout = Rollout.of(loop.take(50))
    env.close()
    return policy, rollout


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize("normalize_observations", [False, True])
def test_before_it_learns_the_policy_is_the_one_that_played(env_id: str, normalize_observations: bool) -> None:
    policy, rollout = played(env_id, normalize_observations=normalize_observations)
    batch = make_batch(policy, rollout, gamma=0.9, gae_lambda=0.9)
    losses = ppo_losses(policy, batch, clip_range=0.2)
    assert losses.approx_kl.item() == pytest.approx(0, abs=1e-6)
    assert losses.policy_loss.item() == pytest.approx(0, abs=1e-5)  # of advantages with mean 0, all at ratio 1
    with torch.no_grad():
        inputs = policy(batch.observations)
        assert torch.allclose(batch.log_probs, policy.head.log_prob(inputs, batch.actions), atol=1e-5)


def test_actions_at_a_bound_are_there_and_have_a_finite_probability() -> None:
    policy, rollout = played("Pendulum-v1")
    at_bound = rollout.actions.abs().squeeze(-1) == policy.action_space.high.item()  # type: ignore[attr-defined]
    assert at_bound.any() and not at_bound.all()
    assert make_batch(policy, rollout, gamma=0.9, gae_lambda=0.9).log_probs.isfinite().all()


def test_an_update_leaves_the_statistics_alone_and_lowers_the_loss_of_the_value_function() -> None:
    policy, rollout = played("CartPole-v1", normalize_observations=True)
    statistics = {name: tensor.clone() for name, tensor in policy.encoder.state_dict().items()}
    batch = make_batch(policy, rollout, gamma=0.9, gae_lambda=0.9)
    before = ppo_losses(policy, batch, clip_range=0.2).value_loss
    PPO(policy, PPOConfig(learning_rate=0.01, minibatch_size=64), seed=0).update(rollout)
    assert ppo_losses(policy, batch, clip_range=0.2).value_loss < before
    assert all(torch.equal(tensor, statistics[name]) for name, tensor in policy.encoder.state_dict().items())


def test_all_parameters_learn_as_views_of_one_vector() -> None:
    policy, rollout = played("Pendulum-v1")
    before = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
    ppo = PPO(policy, PPOConfig(minibatch_size=64), seed=0)
    assert all(torch.equal(tensor, before[name]) for name, tensor in policy.state_dict().items())
    ppo.update(rollout)
    changed = {name for name, tensor in policy.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {name for name, _ in policy.named_parameters()}


def test_a_long_gradient_is_cut_and_its_length_told() -> None:
    module = torch.nn.Linear(3, 1, bias=False)
    flat = FlatParameters(module)
    for gradient, max_norm, expected in [([3.0, 0.0, 4.0], 1.0, [0.6, 0.0, 0.8]), ([3.0, 0.0, 4.0], 9.0, [3.0, 0.0, 4.0])]:
        flat.zero_grad()
        (module.weight * torch.tensor(gradient)).sum().backward()
        assert flat.clip(max_norm).item() == pytest.approx(5.0)
        assert module.weight.grad is not None and torch.allclose(module.weight.grad, torch.tensor([expected]))


def test_a_value_is_worth_no_more_for_going_further_than_the_clip() -> None:
    policy, rollout = played("CartPole-v1")
    batch = make_batch(policy, rollout, gamma=0.9, gae_lambda=0.9)
    values = policy.values(batch.observations).detach()
    for old, returns, loss in [(-0.5, 0.0, 0.3**2), (-0.5, 1.0, 1.3**2), (0.1, 0.3, 0.3**2)]:
        # The value is 0 once it is subtracted: 0.5 above the old one, which may move by 0.2 to -0.3.
        other = batch._replace(values=values + old, returns=values + returns)
        found = ppo_losses(policy, other, clip_range=0.2, value_clip_range=0.2).value_loss
        assert found.item() == pytest.approx(loss, rel=1e-3)
        assert ppo_losses(policy, other, clip_range=0.2).value_loss.item() == pytest.approx(returns**2, abs=1e-4)


def test_the_learning_rate_falls_with_the_share_that_is_done() -> None:
    policy, rollout = played("CartPole-v1")
    ppo = PPO(policy, PPOConfig(learning_rate=0.01, schedule="linear", num_epochs=1), seed=0)
    for done, rate in [(0.0, 0.01), (0.75, 0.0025)]:
        ppo.update(rollout, done=done)
        assert ppo.optimizer.param_groups[0]["lr"] == pytest.approx(rate)


def test_statistics_travel_with_the_checkpoint(tmp_path: Path) -> None:
    config = ExpertConfig(
        network=NetworkConfig(hidden_sizes=[8], normalize_observations=True),
        num_envs=4,
        rollout_steps=32,
        total_steps=300,
        evaluation_episodes=2,
        evaluation_interval=3,
    )
    encoder = load_policy(train_expert(config, output=str(tmp_path)).checkpoint).encoder
    assert encoder.count == 2 * 33 * 4  # of the rollouts before the one that was learned from last
    assert (encoder.variance > 0).all()
