"""Experts by SAC and TD3: defaults of their own, and refusals before anything is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from offline_core.errors import ConfigError
from offline_core.learning.experts.config import ExpertConfig
from offline_core.learning.experts.train import train_expert
from offline_core.learning.presets import EXPERT_PRESETS
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.config import NetworkConfig
from offline_core.policies.manifest import read_policy_manifest
from offline_core.runtime.config import parse

TINY: dict[str, Any] = {
    "environment": {"id": "Pendulum-v1"},
    "total_steps": 400,
    "rollouts_per_iteration": 25,
    "evaluation": {"episodes": 2},
    "network": {"hidden_sizes": [8]},
    "replay": {"learning_starts_steps": 100, "capacity_steps": 300},
    "optimizer": {"batch_size": 16},
}


def config(**values: Any) -> ExpertConfig:
    return parse(ExpertConfig, TINY | values)


def test_each_algorithm_has_defaults_under_what_is_given() -> None:
    ppo, sac = ExpertConfig(), ExpertConfig(algorithm="sac")
    assert (ppo.num_envs, ppo.rollout_steps, ppo.network) == (64, 64, NetworkConfig())
    assert (sac.num_envs, sac.rollout_steps) == (4, 1)
    assert sac.network == NetworkConfig(hidden_sizes=[256, 256], activation="relu")
    chosen = parse(ExpertConfig, {"algorithm": "td3", "num_envs": 8, "network": {"hidden_sizes": [16]}, "recording": {}})
    assert (chosen.num_envs, chosen.network) == (8, NetworkConfig(hidden_sizes=[16], activation="relu"))
    assert chosen.recording is not None and chosen.recording.every_rollouts == 2_500
    given = ExpertConfig(algorithm="sac", network=NetworkConfig(activation="tanh"))
    assert given.network == NetworkConfig(hidden_sizes=[256, 256], activation="tanh")
    assert ExpertConfig.model_validate(chosen.model_dump()) == chosen


def test_a_preset_lies_between_what_is_given_and_the_defaults() -> None:
    ppo = parse(ExpertConfig, {"preset": "mujoco", "optimizer": {"learning_rate": 1e-3}})
    assert (ppo.num_envs, ppo.rollout_steps, ppo.optimizer.schedule, ppo.optimizer.learning_rate) == (1, 2_048, "linear", 1e-3)
    sac = parse(ExpertConfig, {"preset": "mujoco", "algorithm": "sac", "num_envs": 8})
    assert (sac.num_envs, sac.rollout_steps, sac.replay.learning_starts_steps) == (8, 1, 10_000)
    assert sac.network.activation == "relu"
    with pytest.raises(ConfigError, match="of the algorithm td3 there is no preset 'locomotion'; there are mujoco"):
        parse(ExpertConfig, {"preset": "locomotion", "algorithm": "td3"})


@pytest.mark.parametrize(("algorithm", "preset"), [(name, each) for name in EXPERT_PRESETS for each in EXPERT_PRESETS[name]])
def test_each_preset_is_an_expert_of_its_algorithm(algorithm: str, preset: str) -> None:
    config = parse(ExpertConfig, {"algorithm": algorithm, "preset": preset})
    plain = ExpertConfig(algorithm=algorithm)
    assert config.algorithm == algorithm and (config.num_envs, config.total_steps) == (1, 1_000_000)
    changed = {name for name in type(config).model_fields if getattr(config, name) != getattr(plain, name)}
    assert not changed & config.unused, "it sets nothing that the algorithm does not read"
    assert parse(ExpertConfig, config.model_dump(mode="json")) == config, "what is stored means the same"


def test_the_settings_of_a_preset_are_those_of_its_source() -> None:
    """CleanRL's ppo_continuous_action.py and td3_continuous_action.py; rl-baselines3-zoo's sac.yml for MuJoCo."""
    ppo, sac, td3 = (parse(ExpertConfig, {"preset": "mujoco", "algorithm": name}) for name in ("ppo", "sac", "td3"))
    rates = (ppo.optimizer.learning_rate, ppo.optimizer.batch_size, ppo.ppo.num_epochs, ppo.ppo.gae_lambda, ppo.ppo.clip_range)
    assert rates == (3e-4, 64, 10, 0.95, 0.2)
    assert ppo.ppo.normalize_rewards and ppo.network.normalize_observations
    assert ppo.network == NetworkConfig(hidden_sizes=[64, 64], activation="tanh", normalize_observations=True)
    for config, starts in ((sac, 10_000), (td3, 25_000)):
        rates = (config.optimizer.batch_size, config.optimizer.learning_rate, config.optimizer.max_gradient_norm)
        assert (config.replay.learning_starts_steps, *rates) == (starts, 256, 3e-4, None)
        assert config.network == NetworkConfig(hidden_sizes=[256, 256], activation="relu")
    assert (td3.td3.target_rate, td3.td3.policy_interval_updates, td3.td3.gamma) == (0.005, 2, 0.99)
    assert (sac.sac.target_rate, sac.sac.gamma) == (0.005, 0.99)


def test_a_form_that_nobody_touched_leaves_a_preset_as_it_is() -> None:
    filled = ExpertConfig().model_dump(mode="json") | {"algorithm": "td3", "preset": "mujoco"}
    assert parse(ExpertConfig, filled) == parse(ExpertConfig, {"algorithm": "td3", "preset": "mujoco"})


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["sac", "td3"])
def test_same_seed_same_expert_to_the_bit(tmp_path: Path, algorithm: str) -> None:
    sha = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        result = train_expert(config(algorithm=algorithm, seed=seed), output=str(tmp_path / name))
        assert (result.env_steps, result.updates) == (400, 300)
        sha.append(read_policy_manifest(result.checkpoint).weights_sha256)
    assert sha[0] == sha[1] != sha[2]


def test_a_filter_of_observations_learns_what_was_played(tmp_path: Path) -> None:
    network = {"hidden_sizes": [8], "normalize_observations": True}
    result = train_expert(config(algorithm="sac", network=network), output=str(tmp_path))
    assert load_policy(result.checkpoint).encoder.count >= 100


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"environment": {"id": "CartPole-v1"}}, r"SAC chooses continuous actions; it cannot act in Discrete\(2\)\. .* or ppo"),
        ({"network": {"recurrent": "gru"}}, "network.recurrent to None"),
        ({"initial_policy": "x"}, "no policy at .*/x"),
        ({"num_envs": 1, "replay": {"capacity_steps": 8}}, "raise it, or lower optimizer.batch_size"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_cannot_be_is_said_and_nothing_is_written(tmp_path: Path, values: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message):
        train_expert(config(algorithm="sac", **values), output=str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_clone_goes_on_with_ppo_alone(tmp_path: Path) -> None:
    first = train_expert(config(algorithm="sac"), output=str(tmp_path / "a"))
    with pytest.raises(ConfigError, match="algorithm to ppo"):
        train_expert(config(algorithm="td3", initial_policy=first.checkpoint), output=str(tmp_path / "b"))


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["sac", "td3"])
def test_it_learns_to_swing_a_pendulum_up(tmp_path: Path, algorithm: str) -> None:
    """A random policy has -1,200; 20,000 steps of PPO have about the same."""
    values = {
        "total_steps": 12_000,
        "rollouts_per_iteration": 500,
        "evaluation": {"episodes": 20, "target_return": -200},
        "network": {"hidden_sizes": [64, 64]},
        "replay": {"learning_starts_steps": 1_000},
        "optimizer": {"learning_rate": 1e-3},
    }
    assert train_expert(config(algorithm=algorithm, **values), output=str(tmp_path)).reached_target
