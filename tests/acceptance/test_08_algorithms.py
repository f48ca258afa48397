"""Point 8: BC, MARWIL, DQN; actions of either kind; networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from offline_core.data.episodes import Episode
from offline_core.errors import ConfigError
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.policy import Policy
from tests.acceptance.forms import metrics, run_train
from tests.learning.datasets import dataset_of
from tests.learning.test_train import balancing_episodes

CONTINUOUS = gym.spaces.Box(-np.inf, np.inf, (4,)), gym.spaces.Box(-2.0, 2.0, (1,))
THOROUGH = {"max_epochs": 20, "batch_size": 128}


@pytest.fixture(scope="module")
def discrete(tmp_path_factory: pytest.TempPathFactory) -> str:
    """2,000 steps of a simple good controller for CartPole."""
    return dataset_of(tmp_path_factory.mktemp("discrete") / "data", balancing_episodes(), environment=None)


@pytest.fixture(scope="module")
def continuous(tmp_path_factory: pytest.TempPathFactory) -> str:
    """2,000 steps whose action is the mean of what is observed; the larger, the better."""
    rng = np.random.default_rng(0)
    episodes = []
    for number in range(20):
        observations = rng.uniform(-1, 1, (101, 4)).astype(np.float32)
        actions = observations[:-1].mean(axis=1, keepdims=True)
        spaces = {"observation_space": CONTINUOUS[0], "action_space": CONTINUOUS[1]}
        episodes.append(
            Episode(
                eps_id=str(number),
                observations=observations,
                actions=actions,
                rewards=actions[:, 0].astype(np.float64),
                truncated=True,
                **spaces,
            )
        )
    folder = tmp_path_factory.mktemp("continuous") / "data"
    return dataset_of(folder, episodes, spaces=CONTINUOUS, environment=None)


def agreement(policy: Policy) -> float:
    """The share of steps, of other episodes, where it does what the controller does."""
    others = balancing_episodes(5, seed=1)
    return float(np.mean([(policy.act(e.observations[:-1]) == e.actions).mean() for e in others]))


def error(policy: Policy) -> float:
    seen = np.random.default_rng(1).uniform(-1, 1, (500, 4)).astype(np.float32)
    return float(np.abs(policy.act(seen) - seen.mean(axis=1, keepdims=True)).mean())


@pytest.mark.parametrize("algorithm", ["bc", "marwil"])
def test_08_bc_and_marwil_with_discrete_actions(discrete: str, tmp_path: Path, algorithm: str) -> None:
    result = run_train(discrete, tmp_path, algorithm=algorithm, optimizer=THOROUGH)
    assert agreement(load_policy(result.checkpoint)) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["bc", "marwil"])
def test_08_bc_and_marwil_with_continuous_actions(continuous: str, tmp_path: Path, algorithm: str) -> None:
    result = run_train(continuous, tmp_path, algorithm=algorithm, optimizer=THOROUGH)
    assert error(load_policy(result.checkpoint)) < 0.1, "of actions that differ by 0.25 on average"


def test_08_marwil_has_gae_a_value_function_a_normaliser_and_weights(discrete: str, tmp_path: Path) -> None:
    results = {}
    for gae_lambda in (1.0, 0.5):
        marwil = {"beta": 1.0, "gae_lambda": gae_lambda, "normalizer_start": 4.0, "normalizer_rate": 0.5, "max_weight": 2.0}
        results[gae_lambda] = run_train(discrete, tmp_path / str(gae_lambda), algorithm="marwil", marwil=marwil)
    one = results[1.0].training_metrics
    assert one.keys() >= {"value_loss", "policy_loss", "explained_variance", "normalizer", "effective_sample_size"}
    assert 0 < one["effective_sample_size"] <= 1 and one["normalizer"] != 4.0
    assert one["value_loss"] != results[0.5].training_metrics["value_loss"], "other targets"
    observation = torch.zeros(1, 4)
    assert torch.isfinite(load_policy(results[1.0].checkpoint).values(observation)).all()


@pytest.mark.parametrize("algorithm", ["dqn", "cql"])
def test_08_dqn_from_saved_experience_with_estimated_q_to_watch(discrete: str, tmp_path: Path, algorithm: str) -> None:
    result = run_train(discrete, tmp_path, algorithm=algorithm)
    records = [record for record in metrics(tmp_path) if "q" in record]
    assert len(records) == len(result.losses) > 1
    assert all(record["q_min"] <= record["q"] <= record["q_max"] for record in records)
    assert {"td_error", "target_q"} <= records[-1].keys()


@pytest.mark.parametrize("algorithm", ["iql", "cql"])
def test_08_learning_of_values_with_continuous_actions(continuous: str, tmp_path: Path, algorithm: str) -> None:
    """DQN itself is for discrete ones, and says so."""
    result = run_train(continuous, tmp_path, algorithm=algorithm, network={"squash": True})
    assert np.isfinite(result.losses).all() and load_policy(result.checkpoint).action_space == CONTINUOUS[1]
    with pytest.raises(ConfigError, match="DQN chooses among a list of actions"):
        run_train(continuous, tmp_path / "dqn", algorithm="dqn")


ACTIVATIONS: dict[str, Any] = {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU, "silu": torch.nn.SiLU}


@pytest.mark.parametrize(("sizes", "activation"), [([32], "tanh"), ([8, 16], "relu"), ([16], "silu")], ids=str)
def test_08_networks_by_size_and_activation(discrete: str, tmp_path: Path, sizes: list[int], activation: str) -> None:
    result = run_train(
        discrete, tmp_path, network={"hidden_sizes": sizes, "activation": activation}, optimizer={"max_epochs": 1}
    )
    modules = [*load_policy(result.checkpoint).modules()]
    linear = [module.out_features for module in modules if isinstance(module, torch.nn.Linear)]
    assert linear == [*sizes, 2]
    assert sum(isinstance(module, ACTIVATIONS[activation]) for module in modules) == len(sizes)


def test_08_layers_are_shared_or_not(discrete: str, tmp_path: Path) -> None:
    def parameters(shared: bool) -> int:
        network = {"hidden_sizes": [16], "share_layers": shared}
        result = run_train(discrete, tmp_path / str(shared), algorithm="marwil", network=network, optimizer={"max_epochs": 1})
        return sum(tensor.numel() for tensor in load_policy(result.checkpoint).parameters())

    assert parameters(shared=False) - parameters(shared=True) == 4 * 16 + 16, "the value function's own hidden layer"
