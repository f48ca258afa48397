"""The ring of played steps, against what an environment of known steps must leave in it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from gymnasium.vector import VectorEnv
from torch import Tensor

from offline_core.data.environments.vector_env import make_vector_env
from offline_core.errors import ConfigError
from offline_core.learning.config import RewardsConfig
from offline_core.learning.returns import N_STEP_DISCOUNTS, N_STEP_REWARDS, RETURNS_TO_GO
from offline_core.learning.step_ring import StepRing
from offline_core.policies.policy import Policy
from offline_core.policies.rollouts import EnvironmentLoop
from tests.learning.play.clock import CLOCK


@contextlib.contextmanager
def clocks(copies: int) -> Iterator[VectorEnv]:
    with contextlib.closing(make_vector_env(CLOCK, copies)) as env:
        yield env


def filled(steps: int, *, copies: int = 1, capacity_steps: int = 100, **settings: object) -> StepRing:
    """A ring after so many steps of each copy, resets included."""
    with clocks(copies) as env:
        spaces = (env.single_observation_space, env.single_action_space)
        loop = EnvironmentLoop(env, Policy(*spaces), seed=0, explore=True)
        ring = StepRing(copies, spaces, capacity_steps=capacity_steps, **settings)
        ring.begin(loop.observations)
        for _ in range(steps):
            ring.add(next(loop))
        return ring


def drawn(ring: StepRing, size: int = 2_000) -> Tensor:
    """All indices that can be drawn, sorted."""
    return ring.draw(size, torch.Generator().manual_seed(0)).unique()


def rows(ring: StepRing, *, n_step: int = 1, gamma: float = 0.5) -> list[tuple[float, ...]]:
    """(episode, t, next episode, next t, reward, discount) of all steps that can be drawn."""
    batch = ring.batch(drawn(ring), n_step=n_step, gamma=gamma)
    columns = [*batch["obs"].T, *batch["new_obs"].T, batch[N_STEP_REWARDS], batch[N_STEP_DISCOUNTS]]
    return [tuple(row) for row in torch.stack(columns, dim=1).tolist()]


def test_a_terminated_step_is_worth_its_reward_and_a_truncated_one_what_follows_too() -> None:
    # Steps: 0 1 2 (terminated) reset, 0 1 (truncated) reset, 0
    assert rows(filled(8)) == [
        (0, 0, 0, 1, 0, 0.5),
        (0, 1, 0, 2, 1, 0.5),
        (0, 2, 0, 3, 2, 0.0),
        (1, 0, 1, 1, 10, 0.5),
        (1, 1, 1, 2, 11, 0.5),
        (2, 0, 2, 1, 20, 0.5),
    ]


def test_n_steps_stop_at_the_end_of_an_episode_and_at_the_newest_step() -> None:
    assert rows(filled(8), n_step=3) == [
        (0, 0, 0, 3, 0 + 0.5 * 1 + 0.25 * 2, 0.0),
        (0, 1, 0, 3, 1 + 0.5 * 2, 0.0),
        (0, 2, 0, 3, 2, 0.0),
        (1, 0, 1, 2, 10 + 0.5 * 11, 0.25),
        (1, 1, 1, 2, 11, 0.5),
        (2, 0, 2, 1, 20, 0.5),
    ]


def test_a_full_ring_has_the_last_steps_of_each_copy() -> None:
    ring = filled(8, copies=2, capacity_steps=6)  # three rows: a truncated step, a reset, a step
    found = rows(ring, n_step=2)
    assert sorted(found) == [(1, 1, 1, 2, 11, 0.5)] * 2 + [(2, 0, 2, 1, 20, 0.5)] * 2
    assert ring.steps == 12


def test_each_step_is_drawn_as_often_as_any_other() -> None:
    ring = filled(8)
    counts = torch.bincount(ring.draw(60_000, torch.Generator().manual_seed(1)))
    assert (counts[counts > 0] - 10_000).abs().max() < 500


def test_of_a_ring_that_lost_most_of_its_steps_the_others_are_drawn_as_often_as_any(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = filled(400, capacity_steps=1_000)
    ring.leave_out(0, 389)
    tries, randint = [], torch.randint
    monkeypatch.setattr(torch, "randint", lambda *arguments, **more: tries.append(1) or randint(*arguments, **more))
    counts = torch.bincount(ring.draw(60_000, torch.Generator().manual_seed(1)))
    assert len(tries) == 2
    assert (counts > 0).nonzero().min() >= 390 and 5 <= (counts > 0).sum() <= 10
    assert (counts[counts > 0] - 60_000 / (counts > 0).sum()).abs().max() < 500


def test_episodes_that_are_open_when_others_begin_are_not_joined_to_them() -> None:
    with clocks(1) as env:
        spaces = (env.single_observation_space, env.single_action_space)
        ring = StepRing(1, spaces, capacity_steps=100)
        for seed in range(2):
            loop = EnvironmentLoop(env, Policy(*spaces), seed=seed, explore=True)
            ring.begin(loop.observations)
            for _ in range(2):
                ring.add(next(loop))
    assert rows(ring, n_step=2) == [
        (0, 0, 0, 2, 0 + 0.5 * 1, 0.25),
        (0, 1, 0, 2, 1, 0.5),
        (1, 0, 1, 2, 10 + 0.5 * 11, 0.25),
        (1, 1, 1, 2, 11, 0.5),
    ]


def test_rewards_are_learned_scaled_and_shifted() -> None:
    found = rows(filled(2, rewards=RewardsConfig(scale=2.0, shift=-1.0)), n_step=2)
    assert [row[4] for row in found] == [(2 * 0 - 1) + 0.5 * (2 * 1 - 1), 2 * 1 - 1]


@pytest.mark.parametrize("capacity_steps", [100, 4])
def test_returns_to_go_are_known_once_an_episode_has_ended(capacity_steps: int) -> None:
    ring = filled(8, capacity_steps=capacity_steps, returns_gamma=0.5)
    found = ring.batch(drawn(ring), n_step=1, gamma=0.5)
    by_step = {tuple(at): value for at, value in zip(found["obs"].tolist(), found[RETURNS_TO_GO].tolist(), strict=True)}
    whole = {(0, 0): 1.0, (0, 1): 2.0, (0, 2): 2.0, (1, 0): 15.5, (1, 1): 11.0, (2, 0): -np.inf}
    assert by_step == {at: value for at, value in whole.items() if at in by_step}
    assert len(by_step) == (6 if capacity_steps == 100 else 3)


def test_memory_that_is_not_there_is_said() -> None:
    with clocks(1) as env, pytest.raises(ConfigError, match="lower capacity_steps"):
        StepRing(1, (env.single_observation_space, env.single_action_space), capacity_steps=10**15)
