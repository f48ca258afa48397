"""Learning from play: the same each time, fresh and recorded steps by share, and learning at all."""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from offline_core.data.environments.vector_env import make_vector_env
from offline_core.data.episodes import EpisodeBatch, columns
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError
from offline_core.learning.fine_tuning.config import FineTuneConfig
from offline_core.learning.learner import Batched, Learner
from offline_core.learning.play import Play, learned_steps
from offline_core.learning.steps import Steps
from offline_core.policies.config import NetworkConfig
from tests.cases import slow_but
from tests.learning.algorithms.making import make_networks
from tests.learning.play.clock import CLOCK

SMALL = NetworkConfig(hidden_sizes=[8])


class Playing:
    """A policy at play, and its learner."""

    def __init__(
        self, folder: Path, name: str = "sac", *, copies: int = 2, seed: int = 0, log: Steps | None = None, **replay: Any
    ) -> None:
        self.env = make_vector_env(CLOCK, copies)
        networks = make_networks(name, self.env.single_observation_space, self.env.single_action_space, SMALL, seed=seed)
        batch_size = replay.pop("batch_size", 8)
        config = FineTuneConfig(
            seed=seed,
            total_steps=10**6,
            rollouts_per_iteration=1,
            optimizer={"batch_size": batch_size},
            replay={"capacity_steps": 100, "learning_starts_steps": 6} | replay,
        )
        self.learner = Learner(networks, config, total_steps=10**6)
        if log is not None:
            self.learner.load(log)
        states = Location.of(str(folder))
        self.play = Play(networks, self.env, config, states=states, log=log, log_share=0.0 if log is None else 0.25)
        self.batches: list[Batched] = []

    def go(self, rollouts: int) -> None:
        """Play and learn."""
        ended = itertools.count(1)
        for batch in self.play.batches(self.learner):
            if batch is not None:
                self.batches.append(batch)
                assert self.learner.update(batch.indices, batch)
            elif next(ended) == rollouts:
                return


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


@pytest.mark.parametrize("name", slow_but(["sac", "td3", "iql", "awac", "cal_ql"], "sac"))
def test_same_seed_same_networks(tmp_path: Path, name: str) -> None:
    states = []
    for number, seed in enumerate((0, 0, 1)):
        playing = Playing(tmp_path / str(number), name, seed=seed)
        playing.go(20)
        states.append(playing.learner.state() | playing.play.save()[1])
        playing.env.close()
    first, again, other = states
    assert all(torch.equal(tensor, again[key]) for key, tensor in first.items())
    assert not all(torch.equal(tensor, other[key]) for key, tensor in first.items())


@pytest.mark.parametrize(("ratio", "updates"), [(1.0, 16), (0.25, 4), (2.0, 32)])
def test_updates_follow_the_steps_after_the_first_ones(tmp_path: Path, ratio: float, updates: int) -> None:
    playing = Playing(tmp_path, copies=1, updates_per_step=ratio)
    while playing.play.env_steps < 22:
        playing.go(1)
    playing.env.close()
    assert playing.learner.updates == updates, "22 steps, of which 6 come before learning"


def test_first_actions_are_uniform_over_the_action_space(tmp_path: Path) -> None:
    playing = Playing(tmp_path, "td3", learning_starts_steps=400, batch_size=64, capacity_steps=1_000)
    playing.go(150)
    playing.env.close()
    actions = playing.play.ring.rows_from(0)[columns.ACTIONS][:-1]
    assert actions.min() < -1.8 and actions.max() > 1.8 and abs(float(actions.std()) - 4 / 12**0.5) < 0.15


def test_a_share_of_each_batch_is_recorded(tmp_path: Path) -> None:
    playing = Playing(tmp_path, log=recorded())
    playing.go(10)
    playing.env.close()
    shares = [int((batch.columns["obs"][:, 0] < 0).sum()) for batch in playing.batches if batch.columns is not None]
    assert len(shares) > 5 and set(shares) == {2}, "a quarter of 8"


def test_the_learning_rate_falls_to_the_end_of_play(tmp_path: Path) -> None:
    config = FineTuneConfig(
        total_steps=40,
        num_envs=2,
        optimizer={"batch_size": 8, "learning_rate": 0.01, "schedule": "linear"},
        replay={"learning_starts_steps": 10, "updates_per_step": 0.5},
    )
    rates = []
    with contextlib.closing(make_vector_env(CLOCK, 2)) as env:
        networks = make_networks("sac", env.single_observation_space, env.single_action_space, SMALL)
        learner = Learner(networks, config, total_steps=learned_steps(config, None))
        play = Play(networks, env, config, states=Location.of(str(tmp_path)))
        for batch in play.batches(learner):
            if batch is not None:
                learner.update(batch.indices, batch)
                rates.append(learner.optimizer.param_groups[0]["lr"])
    assert play.env_steps == 40 and rates == pytest.approx([0.01 * (1 - update / 15) for update in range(15)])


def test_a_policy_that_remembers_is_refused(tmp_path: Path) -> None:
    with contextlib.closing(make_vector_env(CLOCK, 1)) as env:
        spaces = (env.single_observation_space, env.single_action_space)
        networks = make_networks("sac", *spaces, NetworkConfig(frames=2))
        with pytest.raises(ConfigError, match=r"network.frames to 1"):
            Play(networks, env, FineTuneConfig(), states=Location.of(str(tmp_path)))
