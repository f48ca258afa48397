"""Evaluations: played here while that is quick, by an actor once it is not, with the same returns."""

from __future__ import annotations

import numpy as np
import pytest

from offline_core.config import EnvironmentSpec
from offline_core.environments import spaces_of
from offline_core.learning import evaluations
from offline_core.learning.evaluations import Evaluation, Evaluations, snapshot
from offline_core.policies.policy import Policy

CARTPOLE = EnvironmentSpec(id="CartPole-v1")


def played(policy: Policy, rounds: int) -> list[Evaluation]:
    found: list[Evaluation] = []
    playing = Evaluations(policy, CARTPOLE, episodes=5, num_envs=2, seed=3)
    try:
        for updates in range(rounds):
            playing.submit(updates)
            found += playing.finished(wait=False)
        found += playing.finished(wait=True)
    finally:
        playing.close()
    return found


@pytest.mark.usefixtures("ray_up")
def test_the_same_returns_here_and_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = Policy(*spaces_of(CARTPOLE), seed=1)
    here = played(policy, 4)
    monkeypatch.setattr(evaluations, "QUICK_SECONDS", 0.0)
    elsewhere = played(policy, 4)
    assert [e.updates for e in here] == [e.updates for e in elsewhere] == [0, 1, 2, 3]
    for one, other in zip(here, elsewhere, strict=True):
        np.testing.assert_array_equal(one.rollouts.returns, other.rollouts.returns)


def test_what_is_played_is_the_policy_as_it_was() -> None:
    policy = Policy(*spaces_of(CARTPOLE), seed=1)
    before = snapshot(policy)
    playing = Evaluations(policy, CARTPOLE, episodes=5, num_envs=2, seed=3)
    playing.submit(1)
    policy.load_state_dict(Policy(*spaces_of(CARTPOLE), seed=2).state_dict())
    playing.submit(2)
    playing.submit(3, before)
    first, second, third = playing.finished(wait=True)
    assert first.rollouts.returns.tolist() == third.rollouts.returns.tolist() != second.rollouts.returns.tolist()
    assert all((first.weights[name] == before[name]).all() for name in before)
