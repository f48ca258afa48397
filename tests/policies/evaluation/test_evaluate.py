"""Evaluating a checkpoint."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from offline_core.data.datasets.manifest import Operation
from offline_core.data.environments.vector_env import spaces_of
from offline_core.errors import CheckpointError, ConfigError
from offline_core.policies.checkpoint import load_policy, save_policy
from offline_core.policies.evaluation import EvaluationConfig, evaluate
from offline_core.policies.policy import Policy
from offline_core.runtime.config import EnvironmentSpec

torch.set_num_threads(1)

PENDULUM = EnvironmentSpec(id="Pendulum-v1", kwargs={"max_episode_steps": 6})


def test_a_checkpoint_is_played_where_it_was_trained(cartpole_policy: str) -> None:
    result = evaluate(EvaluationConfig(episodes=7), policy=cartpole_policy)
    assert (result.checkpoint, result.environment) == (cartpole_policy, "CartPole-v1")
    assert len(result.returns) == len(result.lengths) == 7
    assert result.returns == result.lengths, "CartPole rewards each step with 1"
    assert result.metrics["episodes"] == 7
    assert result.metrics["episode_return_mean"] == pytest.approx(np.mean(result.returns))
    assert result.metrics["episode_return_max"] == max(result.returns)
    assert result.seconds > 0


def test_the_seed_decides(pendulum_policy: str) -> None:
    def returns(seed: int, *, explore: bool = False) -> list[float]:
        config = EvaluationConfig(episodes=3, seed=seed, explore=explore, environment=PENDULUM)
        return evaluate(config, policy=pendulum_policy).returns

    assert returns(1) == returns(1)
    assert returns(1, explore=True) == returns(1, explore=True)
    assert len({tuple(returns(1)), tuple(returns(2)), tuple(returns(1, explore=True))}) == 3


def test_another_number_of_copies_plays_other_episodes(cartpole_policy: str) -> None:
    def returns(**more: int) -> list[float]:
        return evaluate(EvaluationConfig(episodes=6, explore=True, **more), policy=cartpole_policy).returns

    assert len(returns(num_envs=2)) == 6
    assert returns(num_envs=2) != returns() == returns(num_envs=6)


def test_another_environment_can_be_named(cartpole_policy: str) -> None:
    environment = EnvironmentSpec(id="CartPole-v1", kwargs={"max_episode_steps": 3})
    result = evaluate(EvaluationConfig(episodes=4, environment=environment), policy=cartpole_policy)
    assert result.lengths == [3] * 4


def test_an_environment_that_the_policy_cannot_play_in_is_refused(cartpole_policy: str) -> None:
    with pytest.raises(ConfigError, match=r"observation space .*Pendulum-v1"):
        evaluate(EvaluationConfig(environment=PENDULUM), policy=cartpole_policy)


def test_a_policy_without_environment_needs_one_named(tmp_path: Path) -> None:
    save_policy(Policy(*spaces_of(PENDULUM)), str(tmp_path), operation=Operation(name="test"))
    told = f"{tmp_path} does not name the environment .* set the parameter.*offline decide DATASET {tmp_path}"
    with pytest.raises(ConfigError, match=told):
        evaluate(EvaluationConfig(), policy=str(tmp_path))
    result = evaluate(EvaluationConfig(episodes=1, environment=PENDULUM), policy=str(tmp_path))
    assert result.lengths == [6]


def test_a_policy_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=f"no policy at {tmp_path}"):
        evaluate(EvaluationConfig(environment=PENDULUM), policy=str(tmp_path))


def test_evaluating_leaves_the_policy_as_it_is(tmp_path: Path) -> None:
    save_policy(Policy(*spaces_of(PENDULUM)), str(tmp_path), operation=Operation(name="test"), environment=PENDULUM)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    result = evaluate(EvaluationConfig(episodes=2), policy=str(tmp_path))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before
    assert [str(path) for path in (tmp_path / "_evaluations").iterdir()] == [result.uri]
    assert not load_policy(str(tmp_path)).training
