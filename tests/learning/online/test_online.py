"""Learning from play: the same each time, fresh and recorded steps by share, and learning at all."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
import torch

from offline_core.data.environments.vector_env import make_vector_env
from offline_core.data.episodes import EpisodeBatch, columns
from offline_core.errors import ConfigError, LearningError
from offline_core.learning.algorithms.registry import make_networks
from offline_core.learning.online.config import OnlineConfig
from offline_core.learning.online.learner import OnlineLearner
from offline_core.learning.steps import Steps
from offline_core.policies.config import NetworkConfig
from tests.learning.online.clock import CLOCK

SMALL = NetworkConfig(hidden_sizes=[8])


def learner(
    name: str = "sac", *, copies: int = 2, seed: int = 0, offline: Steps | None = None, **settings: Any
) -> OnlineLearner:
    env = make_vector_env(CLOCK, copies)
    algorithm: Any = make_networks(name, env.single_observation_space, env.single_action_space, SMALL, seed=seed)
    config = OnlineConfig(**{"batch_size": 8, "capacity_steps": 100, "learning_starts_steps": 6} | settings)
    return OnlineLearner(algorithm, env, config, seed=seed, offline=offline, offline_share=0.0 if offline is None else 0.25)


def recorded(episodes: int = 4, steps: int = 3) -> Steps:
    """Steps that observe (-1, t), for they are none of the environment's."""
    rows = episodes * (steps + 1)
    batch = EpisodeBatch(
        columns={
            columns.OBS: np.stack([-np.ones(rows), np.arange(rows)], axis=1),
            columns.ACTIONS: np.zeros((rows, 1), np.float32),
            columns.REWARDS: np.ones(rows),
            columns.TERMINATEDS: np.zeros(rows, bool),
        },
        offsets=np.arange(0, rows + 1, steps + 1),
        has_last=True,
    )
    return Steps.of(batch)


@pytest.mark.parametrize("name", ["sac", "td3", "iql", "awac", "cal_ql"])
def test_same_seed_same_networks(name: str) -> None:
    states = []
    for seed in (0, 0, 1):
        online = learner(name, seed=seed)
        for _ in range(10):
            online.play(2)
            online.learn()
        states.append(online.state())
        online.env.close()
    first, again, other = states
    assert all(torch.equal(tensor, again[key]) for key, tensor in first.items())
    assert not all(torch.equal(tensor, other[key]) for key, tensor in first.items())


@pytest.mark.parametrize(("ratio", "updates"), [(1.0, 16), (0.25, 4), (2.0, 32)])
def test_updates_follow_the_steps_after_the_first_ones(ratio: float, updates: int) -> None:
    online = learner(copies=1, updates_per_step=ratio)
    while online.env_steps < 22:
        online.play(1)
        online.learn()
    online.env.close()
    assert online.updates == updates, "22 steps, of which 6 come before learning"


def test_first_actions_are_uniform_over_the_action_space() -> None:
    online = learner("td3", learning_starts_steps=200, batch_size=64, capacity_steps=1_000)
    online.play(150)
    online.env.close()
    actions = online.ring.rows_from(0)[columns.ACTIONS][:-1]
    assert actions.min() < -1.8 and actions.max() > 1.8 and abs(float(actions.std()) - 4 / 12**0.5) < 0.15


def test_a_share_of_each_batch_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    online, seen = learner(offline=recorded()), []
    update_on = online._learner.update_on
    monkeypatch.setattr(online._learner, "update_on", lambda batch, total: seen.append(batch) or update_on(batch, total))
    for _ in range(10):
        online.play(1)
        online.learn()
    online.env.close()
    shares = [int((batch["obs"][:, 0] < 0).sum()) for batch in seen]
    assert len(shares) > 5 and set(shares) == {2}, "a quarter of 8"


def test_rewards_that_are_no_number_stop_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    online = learner()
    monkeypatch.setattr(online.env, "step", lambda actions, step=online.env.step: _with_nan(step(actions)))
    with contextlib.closing(online.env), pytest.raises(LearningError, match=r"Update 1 of SAC.*lower learning_rate"):
        for _ in range(10):
            online.play(1)
            online.learn()


def _with_nan(step: tuple[Any, ...]) -> tuple[Any, ...]:
    return (step[0], np.full_like(step[1], np.nan), *step[2:])


def test_a_policy_that_remembers_is_refused() -> None:
    with contextlib.closing(make_vector_env(CLOCK, 1)) as env:
        spaces = (env.single_observation_space, env.single_action_space)
        algorithm: Any = make_networks("sac", *spaces, NetworkConfig(frames=2))
        with pytest.raises(ConfigError, match=r"network.frames to 1"):
            OnlineLearner(algorithm, env, OnlineConfig(), seed=0)
