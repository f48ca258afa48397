"""Evaluations: played here while that is quick, by an actor once it is not, with the same returns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from offline_core.data.environments.vector_env import spaces_of
from offline_core.errors import ClusterError, ConfigError
from offline_core.learning import evaluations
from offline_core.learning.config import EvaluationDuringTraining
from offline_core.learning.evaluations import Evaluation, Evaluations, snapshot
from offline_core.policies.policy import Policy
from offline_core.policies.rollouts import Rollouts
from offline_core.runtime.config import EnvironmentSpec, parse

CARTPOLE = EnvironmentSpec(id="CartPole-v1")


def evaluations_of(policy: Policy, **config: Any) -> Evaluations:
    return Evaluations(policy, CARTPOLE, EvaluationDuringTraining(episodes=5, num_envs=2, **config), seed=3)


def played(policy: Policy, rounds: int, **config: Any) -> list[Evaluation]:
    found: list[Evaluation] = []
    playing = evaluations_of(policy, **config)
    try:
        for updates in range(rounds):
            playing.submit({"updates": updates})
            found += playing.finished(wait=False)
        found += playing.finished(wait=True)
    finally:
        playing.close()
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("ray_up")
def test_the_same_returns_here_and_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = Policy(*spaces_of(CARTPOLE), seed=1)
    here = played(policy, 4)
    monkeypatch.setattr(evaluations, "QUICK_SECONDS", 0.0)
    moved = played(policy, 4)
    assert [e.stamp["updates"] for e in here] == [e.stamp["updates"] for e in moved] == [0, 1, 2, 3]
    for one, other in zip(here, moved, strict=True):
        np.testing.assert_array_equal(one.rollouts.returns, other.rollouts.returns)


@pytest.mark.usefixtures("ray_up")
@pytest.mark.slow
def test_several_actors_share_the_episodes_from_the_start() -> None:
    policy = Policy(*spaces_of(CARTPOLE), seed=1)
    alone, shared, again = played(policy, 2), played(policy, 2, actors=3), played(policy, 2, actors=3)
    for one, two in zip(shared, again, strict=True):
        np.testing.assert_array_equal(one.rollouts.returns, two.rollouts.returns)
        assert len(one.rollouts.returns) == len(one.rollouts.lengths) == 5
    assert [evaluation.stamp for evaluation in shared] == [evaluation.stamp for evaluation in alone]
    many = played(policy, 1, actors=9)
    assert len(many[0].rollouts.returns) == 5, "no more actors than episodes"


def test_several_actors_are_not_this_process() -> None:
    with pytest.raises(ConfigError, match="several actors play in actors of Ray"):
        parse(EvaluationDuringTraining, {"actors": 2, "location": "process"})


@pytest.mark.parametrize("told", [[None, None], [np.array([True]), None], [np.array([True]), np.array([False])]])
def test_rollouts_of_several_are_one(told: list[np.ndarray | None]) -> None:
    parts = [Rollouts(np.array([n + 1.0]), np.array([n + 1]), successes) for n, successes in enumerate(told)]
    joined = Rollouts.joined(parts)
    assert joined.returns.tolist() == [1.0, 2.0] and joined.lengths.tolist() == [1, 2]
    assert (None if joined.successes is None else joined.successes.tolist()) == (None if told[0] is None else [True, False])


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[None]]:
    """One entry for each attempt to start Ray, which fails; and every evaluation counts as slow."""
    made: list[None] = []

    @contextmanager
    def cannot_start() -> Iterator[None]:
        made.append(None)
        raise ClusterError("Ray (local) timed out.")
        yield

    monkeypatch.setattr(evaluations, "ray_session", cannot_start)
    monkeypatch.setattr(evaluations, "QUICK_SECONDS", 0.0)
    yield made


def test_without_ray_it_goes_on_in_this_process_and_says_so_once(
    attempts: list[None], caplog: pytest.LogCaptureFixture
) -> None:
    found = played(Policy(*spaces_of(CARTPOLE), seed=1), 3)
    assert [evaluation.stamp["updates"] for evaluation in found] == [0, 1, 2]
    assert len(attempts) == 1
    [warning] = caplog.messages
    assert "evaluation.location=process" in warning and "Ray (local) timed out." in warning


def test_the_location_can_be_chosen(attempts: list[None]) -> None:
    policy = Policy(*spaces_of(CARTPOLE), seed=1)
    assert len(played(policy, 2, location="process")) == 2 and not attempts
    with pytest.raises(ClusterError, match="timed out"):
        evaluations_of(policy, location="actor")


def test_what_is_played_is_the_policy_as_it_was() -> None:
    policy = Policy(*spaces_of(CARTPOLE), seed=1)
    before = snapshot(policy)
    playing = evaluations_of(policy)
    playing.submit({"updates": 1})
    policy.load_state_dict(Policy(*spaces_of(CARTPOLE), seed=2).state_dict())
    playing.submit({"updates": 2})
    playing.submit({"updates": 3}, before)
    first, second, third = playing.finished(wait=True)
    assert first.rollouts.returns.tolist() == third.rollouts.returns.tolist() != second.rollouts.returns.tolist()
    assert all((first.weights[name] == before[name]).all() for name in before)
