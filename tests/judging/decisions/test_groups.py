"""Differences in parts of the episodes, and how many of them are called better or worse by chance."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from offline_core.judging.decisions.comparison import compare
from offline_core.judging.decisions.groups import effects, with_shown
from offline_core.judging.decisions.result import GroupFinding
from offline_core.judging.estimation.trajectories import Model, Trajectories
from tests.judging.estimation.chains import TARGET, played, trajectories, true_q

COMPARE = partial(compare, beyond=0.0, risk=0.05, confidence=0.95, resamples=200, seed=0)


def bandit(count: int, gain: np.ndarray, *, seed: int) -> Trajectories:
    """Clicks of two equally likely actions; the candidate takes the second in nine of ten, which pays `gain` (E,) more."""
    rng = np.random.default_rng(seed)
    second = rng.random(count) < 0.5
    rewards = rng.normal(size=count) + gain * second
    nothing = Model(start_values=np.zeros(count), errors=rewards, end_values=np.zeros(count))
    return Trajectories(np.ones(count, int), rewards, np.log(np.where(second, 1.8, 0.2)), gamma=1.0, model=nothing)


def test_a_part_is_what_its_episodes_alone_would_be() -> None:
    episodes = played(60, seed=1)
    chosen = np.random.default_rng(0).random(60) < 0.4
    part = trajectories(episodes, q=true_q(TARGET)).select(chosen)
    alone = trajectories([each for each, is_in in zip(episodes, chosen, strict=True) if is_in], q=true_q(TARGET))
    assert COMPARE(part, None) == COMPARE(alone, None)
    assert part.model is not None and alone.model is not None
    np.testing.assert_array_equal(part.model.errors, alone.model.errors)


def test_both_sides_are_found_and_a_small_group_is_said_to_be_one() -> None:
    group = np.repeat(["a", "b", "c", "d"], [400, 400, 400, 6])
    gain = np.select([group == "a", group == "b"], [1.0, -1.0], 0.0)
    candidate = bandit(len(group), gain, seed=1)
    found = with_shown(effects({name: group == name for name in "abcd"}, candidate, None, COMPARE, least=10), 0.05)
    assert [each.shown for each in found] == ["better", "worse", None, None]
    assert [each.mark.word for each in found] == ["better", "worse", "not shown", "too small"]
    assert found[0].difference is not None and found[0].difference.value == pytest.approx(0.4, abs=0.15)  # (0.9 - 0.5) · 1


def test_the_risk_is_of_all_groups_together() -> None:
    """Nothing differs in any of six groups; at 0.2 one log in five may call one better or worse."""
    group, wrong = np.arange(360) % 6, 0
    for seed in range(60):
        candidate = bandit(len(group), np.zeros(len(group)), seed=seed)
        found = with_shown(effects({str(g): group == g for g in range(6)}, candidate, None, COMPARE, least=10), 0.2)
        wrong += any(each.shown for each in found)
    assert wrong / 60 <= 0.2 + 2 * (0.2 * 0.8 / 60) ** 0.5


def test_one_group_alone_is_tested_to_both_sides() -> None:
    """A p-value of 0.03 to one side is one of 0.06 to both."""
    known = COMPARE(bandit(200, np.ones(200), seed=0), None).model_copy(update={"p_value": 0.03, "p_worse": 0.97})
    [found] = with_shown([GroupFinding(group="a", episodes=200, difference=known)], 0.05)
    assert found.shown is None
    assert with_shown([found], 0.07)[0].shown == "better"
