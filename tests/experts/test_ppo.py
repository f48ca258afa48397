"""The update: what the learner computes is what the player did, normalised or clipped."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from offline_core.experts.config import ExpertConfig, PPOConfig
from offline_core.experts.ppo import PPO, make_batch, ppo_losses
from offline_core.experts.rollout import Rollout
from offline_core.experts.train import train_expert
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy
from offline_core.rollouts.environments import make_vector_env
from offline_core.runtime.config import EnvironmentSpec
from tests.experts.loops import loop_of


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


def test_actions_at_a_bound_are_there_and_have_a_finite_probability() -> None:
    policy, rollout = played("Pendulum-v1")
    at_bound = rollout.actions.abs().squeeze(-1) == policy.action_space.high.item()  # type: ignore[attr-defined]
    assert at_bound.any() and not at_bound.all()
    assert rollout.log_probs.isfinite().all()


def test_an_update_leaves_the_statistics_alone_and_lowers_the_loss_of_the_value_function() -> None:
    policy, rollout = played("CartPole-v1", normalize_observations=True)
    statistics = {name: tensor.clone() for name, tensor in policy.encoder.state_dict().items()}
    batch = make_batch(policy, rollout, gamma=0.9, gae_lambda=0.9)
    before = ppo_losses(policy, batch, clip_range=0.2).value_loss
    PPO(policy, PPOConfig(learning_rate=0.01, minibatch_size=64), seed=0).update(rollout)
    assert ppo_losses(policy, batch, clip_range=0.2).value_loss < before
    assert all(torch.equal(tensor, statistics[name]) for name, tensor in policy.encoder.state_dict().items())


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
