"""The table of means that values actions where a log is of one step and few contexts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from offline_core.data.episodes import EpisodeBatch
from offline_core.judging.estimation.config import FQEConfig
from offline_core.judging.estimation.fqe import Fitted, fit, say
from offline_core.judging.estimation.q_table import QTable, means
from tests.judging.estimation.chains import policy_of

SPACES = spaces.Discrete(3), spaces.Discrete(2, start=5)
CHANCES = np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]])


def log(rows: int, *, contexts: int = 3, seed: int = 0, **columns: Any) -> EpisodeBatch:
    """Episodes of one step, each with a last observation; rewards are 0.1 (1 + context + 2 action) of the time."""
    rng = np.random.default_rng(seed)
    seen, taken = rng.integers(0, contexts, rows), rng.integers(0, 2, rows)
    paid = (rng.random(rows) < 0.1 * (1 + seen % 3 + 2 * taken)).astype(np.float64)
    steps = {"obs": seen, "actions": taken + 5, "rewards": paid, "terminateds": np.ones(rows, bool)}
    steps |= {"inputs 0": np.log(CHANCES)[seen % 3].astype(np.float32)} | columns
    return EpisodeBatch.from_steps(steps, np.ones(rows, np.int64), last=np.zeros(rows, np.int64))


def fitted(logged: EpisodeBatch, *, folds: int = 2, horizon: int | None = 1, explore: bool = True, **config: Any):
    count = logged.num_episodes
    returns = logged.of_steps("rewards")
    given = {"gamma": 0.9, "horizon": horizon, "explore": explore, "returns": returns, "together": np.arange(count)}
    return fit(logged, [policy_of(CHANCES, SPACES)], FQEConfig(folds=folds, **config), **given, seed=0)


@pytest.mark.parametrize("explore", [True, False])
def test_it_says_what_actions_are_worth_without_an_update(explore: bool) -> None:
    logged = log(40_000)
    table = fitted(logged, explore=explore)
    assert isinstance(table, QTable)
    [model] = say(table, [(np.arange(40_000), logged)], logged.lengths)
    seen, taken = logged.of_steps("obs"), logged.of_steps("actions") - 5
    told = logged.of_steps("rewards") - model.errors
    np.testing.assert_allclose(told, 0.1 * (1 + seen + 2 * taken), atol=0.025)
    chances = CHANCES if explore else np.eye(2)[CHANCES.argmax(axis=1)]
    np.testing.assert_allclose(model.start_values, 0.1 * (1 + seen + 2 * chances[seen, 1]), atol=0.025)
    assert not model.end_values[:].any()


def test_nothing_is_told_of_an_episode_by_itself() -> None:
    """The rewards of one part are what is told of the other, and not of the part itself."""
    logged = log(4_000)
    table = fitted(logged)
    assert isinstance(table, QTable)
    paid = logged.columns["rewards"].copy()
    paid[logged.is_step] = np.where(table.part == 0, 10.0, 0.0)
    table = fitted(logged | {"rewards": paid})
    [model] = say(table, [(np.arange(4_000), logged | {"rewards": paid})], logged.lengths)
    np.testing.assert_allclose(model.start_values, np.where(table.part == 0, 0.0, 10.0), atol=1e-9)


def test_what_was_never_seen_is_worth_what_the_action_is_elsewhere() -> None:
    logged = log(10_000, contexts=2)
    table = fitted(logged, folds=1)
    assert isinstance(table, QTable)
    other = log(1, contexts=1)
    other = other | {"obs": np.array([2, 0])}
    [model] = say(table, [(np.array([10_000]), other)], other.lengths)
    action = int(other.of_steps("actions")[0] - 5)
    assert other.of_steps("rewards")[0] - np.asarray(model.errors)[0] == pytest.approx(0.15 + 0.2 * action, abs=0.02)


@pytest.mark.parametrize(
    "changed",
    [
        {"horizon": None, "terminateds": np.zeros(2 * 2_000, bool)},
        {"contexts": 1_500},
        {"lengths": 2},
    ],
    ids=["something follows", "too many contexts", "two steps"],
)
def test_a_network_says_it_where_a_table_does_not_suffice(changed: dict[str, Any]) -> None:
    logged = log(2_000, contexts=changed.get("contexts", 3))
    if "terminateds" in changed:
        logged = logged | {"terminateds": changed["terminateds"]}
    if "lengths" in changed:
        steps = {name: logged.of_steps(name) for name in logged.columns}
        logged = EpisodeBatch.from_steps(steps, np.full(1_000, 2), last=np.zeros(1_000, np.int64))
        logged = logged | {"rewards": logged.columns["rewards"]}
    count = logged.num_episodes
    given = {"gamma": 0.9, "horizon": changed.get("horizon", 2), "explore": True, "together": np.arange(count)}
    policy = policy_of(CHANCES, SPACES)
    if "contexts" in changed:
        logged = logged | {"obs": logged.columns["obs"].astype(np.float32)[:, None]}
        policy = policy_of(CHANCES[:1], (spaces.Box(0, 2_000, (1,), np.float32), SPACES[1]))
        given["horizon"] = 1
    config = FQEConfig(updates=1, batch_size=8)
    assert isinstance(fit(logged, [policy], config, **given, returns=np.ones(count), seed=0), Fitted)


def test_means_are_shrunken_as_far_as_noise_explains_what_they_differ_by() -> None:
    rng = np.random.default_rng(0)
    contexts, actions = rng.integers(0, 4, 4_000), rng.integers(0, 3, 4_000)
    alike = means(contexts, actions, (rng.random(4_000) < 0.05) * 1.0, 4, 3)
    plain = np.bincount(contexts * 3 + actions, weights=(rng.random(4_000) < 0.05) * 1.0) / np.bincount(contexts * 3 + actions)
    assert alike.std() < plain.std() / 3
    worth = np.arange(12.0)
    np.testing.assert_allclose(means(contexts, actions, worth[contexts * 3 + actions], 4, 3).ravel(), worth, atol=0.2)
    assert not means(contexts, actions, np.zeros(4_000), 4, 3).any(), "no reward at all"
