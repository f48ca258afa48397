"""Games that raise at an illegal action, played from end to end: none is ever chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import offline_core as offline
from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.environments.vector_env import make_vector_env
from offline_core.errors import ConfigError
from offline_core.learning.experts.config import ExpertConfig
from offline_core.learning.experts.train import train_expert
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy
from offline_core.policies.recording.player import EpisodesToPlay, Played
from offline_core.policies.rollouts import EnvironmentLoop
from offline_core.runtime.config import EnvironmentSpec, parse
from tests.policies.rollouts.games import ACTIONS

torch.set_num_threads(1)

STRICT = EnvironmentSpec(id="tests.policies.rollouts.games:Strict-v0", action_mask=True)
INSIDE = EnvironmentSpec(id="tests.policies.rollouts.games:StrictInside-v0")


def policy_of(env: Any, **network: Any) -> Policy:
    return Policy(env.single_observation_space, env.single_action_space, NetworkConfig(hidden_sizes=[8], **network))


@pytest.mark.parametrize("environment", [STRICT, INSIDE, STRICT.model_copy(update={"kwargs": {"start": 3}})])
@pytest.mark.parametrize("explore", [True, False])
def test_no_action_is_illegal_and_masks_are_those_of_their_observations(environment: EnvironmentSpec, explore: bool) -> None:
    env = make_vector_env(environment, 5)
    played = EnvironmentLoop(env, policy_of(env), seed=1, explore=explore, with_extras=True).take(300)
    masks, first = played.observations["action_mask"], environment.kwargs.get("start", 0)
    chosen = np.take_along_axis(masks[:-1], played.actions[..., None] - first, axis=2)[..., 0]
    ends = played.terminated | played.truncated
    assert ends.sum() > 100
    assert (chosen[played.counts] == 1).all()
    assert (masks[1:][played.terminated] == 0).all(), "the mask of a terminal state, and not that of the next episode"
    assert masks[1:][played.truncated].any(axis=1).all()
    assert not any("action_mask" in info for info in played.infos)
    lowest = played.extras["action_dist_inputs"][played.counts] == np.finfo(np.float32).min
    np.testing.assert_array_equal(lowest, masks[:-1][played.counts] == 0)


@pytest.mark.parametrize(
    "network", [{"frames": 3}, {"recurrent": "lstm"}, {"recurrent": "gru"}, {"normalize_observations": True}]
)
def test_policies_that_remember_choose_no_illegal_action_either(network: dict[str, Any]) -> None:
    env = make_vector_env(STRICT, 4)
    assert EnvironmentLoop(env, policy_of(env, **network), seed=2, explore=True).take(60).counts.sum() > 100


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"id": "tests.policies.rollouts.games:StrictSilent-v0"}, "gives no action_mask in the info"),
        ({"id": "tests.policies.rollouts.games:StrictTwos-v0"}, "0 or 1, one for each choice"),
        ({"id": "Pendulum-v1"}, "for Discrete and MultiDiscrete actions"),
        ({"id": "CartPole-v1"}, "gives no action_mask"),
    ],
)
def test_environments_without_masks_are_refused(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_vector_env(EnvironmentSpec(action_mask=True, **spec), 2).reset(seed=0)


def test_the_switch_is_part_of_what_episodes_are_called_only_where_it_is_on() -> None:
    task = EpisodesToPlay(round=0, recorder=0, episodes=1)
    off, on = (
        Played.of(EnvironmentSpec(action_mask=masked), task, identity="policy", num_envs=1, seed=0, explore=True).what
        for masked in (False, True)
    )
    assert off.startswith('policy {"id":"CartPole-v1","kwargs":{}} ') and '"action_mask":true' in on


@pytest.mark.slow
def test_from_an_expert_to_policies_of_its_data_no_action_is_illegal(tmp_path: Path) -> None:
    config = {
        "environment": STRICT.model_dump(),
        "total_steps": 8000,
        "num_envs": 16,
        "rollout_steps": 32,
        "network": {"hidden_sizes": [16]},
        "optimizer": {"learning_rate": 3e-3},
        "evaluation": {"target_return": 100, "episodes": 30},
        "rollouts_per_iteration": 5,
    }
    expert = train_expert(parse(ExpertConfig, config), output=str(tmp_path / "expert"))
    data = offline.record(expert, episodes=150, output=str(tmp_path / "recording"))
    recorded = list(open_dataset(str(tmp_path / "recording")).episodes())
    assert all(len(e.observations["action_mask"]) == len(e) + 1 for e in recorded)
    assert offline.check(data).verdict != "fail"
    returns = dict[str, float]()
    for algorithm in ("bc", "cql", "bcq"):
        run = offline.train(
            data,
            algorithm=algorithm,
            output=str(tmp_path / algorithm),
            optimizer={"max_updates": 200, "batch_size": 128},
            evaluation={"play": False},
            network={"hidden_sizes": [16]},
        )
        returns[algorithm] = offline.evaluate(run, episodes=50).mean_return
        estimated = offline.estimate(run, data, fqe={"updates": 60})
        assert np.isfinite(estimated.estimates["fqe"].value)
        policy = load_policy(run.best)
        assert policy.observation_space["action_mask"] == spaces.MultiBinary(ACTIONS)
    assert returns["bc"] > 3, returns
