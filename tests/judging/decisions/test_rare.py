"""How far a difference between policies may be off where few steps of a log are paid."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2

from offline_core.judging.decisions.comparison import RareRewards, RareSide, compare
from offline_core.judging.estimation.estimators import METHODS
from offline_core.judging.estimation.influence import influence
from offline_core.judging.estimation.trajectories import Model, Trajectories
from tests.cases import slow_but

ITEMS = 5
WANTED = np.array([0.6, 0.1, 0.1, 0.1, 0.1])


def log(rows: int, rates: np.ndarray, *, seed: int, size: float = 1.0) -> Trajectories:
    """Items that are shown alike, and a candidate that prefers the first."""
    rng = np.random.default_rng(seed)
    items = rng.integers(0, ITEMS, rows)
    rewards = size * (rng.random(rows) < rates[items])
    values = np.full(rows, size * float(rates.mean()))
    return Trajectories(
        np.ones(rows, np.int64), rewards, np.log(WANTED[items] * ITEMS), 1.0, Model(values, rewards - values, 0 * rewards)
    )


def test_of_rewards_of_one_size_bounds_are_those_of_a_poisson_number() -> None:
    """Seven clicks: Garwood 1936, 2.814 to 14.423 at 95 %."""
    side = RareSide.of(np.ones(7), np.ones(1_000), 1.0, 1)
    assert side.low(0.025) == pytest.approx(chi2.ppf(0.025, 14) / 2) == pytest.approx(2.814, abs=1e-3)
    assert side.high(0.025) == pytest.approx(chi2.ppf(0.975, 16) / 2) == pytest.approx(14.423, abs=1e-3)
    none = RareSide.of(np.zeros(0), np.ones(1_000), 1.0, 1)
    assert none.low(0.025) == 0 and none.high(0.05) == pytest.approx(-np.log(0.05), rel=1e-6), "the rule of three"


def test_the_p_value_is_the_risk_at_which_the_bound_is_0() -> None:
    episodes = log(4_000, np.array([0.02, 0.01, 0.01, 0.01, 0.01]), seed=1)
    rare = RareRewards.of(episodes, None, np.zeros(4_000))
    assert rare is not None
    for value in (0.003, 0.006):
        assert rare.below(rare.p_value(value)) == pytest.approx(value, rel=1e-6)
        assert rare.above(1 - rare.p_value(-value)) == pytest.approx(value, rel=1e-6)
    assert rare.p_value(0.0) == pytest.approx(0.5, abs=0.01) and rare.p_value(9.0) < 1e-9


def test_costs_are_rewards_the_other_way_round() -> None:
    rates = np.array([0.02, 0.01, 0.01, 0.01, 0.01])
    paid = RareRewards.of(log(4_000, rates, seed=1), None, np.zeros(4_000))
    cost = RareRewards.of(log(4_000, rates, seed=1, size=-3.0), None, np.zeros(4_000))
    assert paid is not None and cost is not None
    assert cost.below(0.05) == pytest.approx(3 * paid.above(0.05))


@pytest.mark.parametrize(
    "rewards",
    [np.ones(100), np.zeros(100), np.where(np.arange(100) < 5, np.tile([1.0, -1.0], 50), 0.0)],
    ids=["not rare", "none", "of both signs"],
)
def test_other_rewards_have_students_bounds(rewards: np.ndarray) -> None:
    assert RareRewards.of(Trajectories(np.ones(100, np.int64), rewards, np.zeros(100), 1.0), None, np.zeros(100)) is None


def test_so_have_longer_episodes() -> None:
    rewards = (np.arange(100) == 3) * 1.0
    assert RareRewards.of(Trajectories(np.full(50, 2), rewards, np.zeros(100), 1.0), None, np.zeros(50)) is None


@pytest.mark.parametrize(("rows", "clicks"), slow_but([(500, 5), (3_000, 30)], (500, 5)))
def test_intervals_cover_the_truth_where_clicks_are_few(rows: int, clicks: int) -> None:
    """Of 200 logs each, with as many clicks in the mean; one candidate is half as good again, one is as good."""
    better = clicks / rows * np.array([2.0, 0.75, 0.75, 0.75, 0.75])
    for rates in (better, np.full(ITEMS, clicks / rows)):
        truth, covered, shown = float((WANTED - 1 / ITEMS) @ rates), 0, 0
        for seed in range(200):
            episodes = log(rows, rates, seed=seed)
            value = float(METHODS["wdr"].estimate(episodes, np.ones((1, rows)))[0]) - episodes.rewards.mean()
            parts = influence(episodes) - (episodes.rewards - episodes.rewards.mean())
            if (rare := RareRewards.of(episodes, None, parts)) is None:
                covered += 1  # without a click nothing is shown
                continue
            covered += value - rare.below(0.025) <= truth <= value + rare.above(0.025)
            shown += rare.p_value(value - truth) <= 0.05
        assert covered >= 186 and shown <= 14


def test_a_comparison_has_no_bound_that_is_closer() -> None:
    episodes = log(500, np.full(ITEMS, 0.01), seed=3)
    found = compare(episodes, None, beyond=0.0, risk=0.05, confidence=0.95, resamples=50, seed=0)
    rare = RareRewards.of(episodes, None, influence(episodes) - (episodes.rewards - episodes.rewards.mean()))
    assert rare is not None
    assert found.low <= found.value - rare.below(0.025) + 1e-9 and found.high >= found.value + rare.above(0.025) - 1e-9
    assert found.p_value >= rare.p_value(found.value) - 1e-9 and found.at_least <= found.value - rare.below(0.05) + 1e-9
