"""Differences on the same episodes, their bounds, and several at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from offline_core.decisions.comparison import combined, compare, holm
from offline_core.decisions.result import Difference
from offline_core.estimation.bootstrap import resampled_counts
from offline_core.estimation.estimators import METHODS
from offline_core.estimation.influence import influence, pareto_k
from tests.estimation.chains import BEHAVIOUR, TARGET, played, trajectories, true_q, true_value

SETTINGS = {"beyond": 0.0, "risk": 0.05, "confidence": 0.95, "resamples": 400, "seed": 0}


def test_influences_are_the_derivatives_of_the_estimate() -> None:
    episodes = trajectories(played(40, seed=3), q=true_q(TARGET))
    found = influence(episodes)
    step, ones = 1e-5, np.ones((40, 40))
    up, down = (METHODS["wdr"].estimate(episodes, ones + sign * step * np.eye(40)) for sign in (1, -1))
    np.testing.assert_allclose(found / 40, (up - down) / (2 * step), atol=1e-6)
    without = replace(episodes, model=None)
    up, down = (METHODS["wpdis"].estimate(without, ones + sign * step * np.eye(40)) for sign in (1, -1))
    np.testing.assert_allclose(influence(without) / 40, (up - down) / (2 * step), atol=1e-6)


def test_their_standard_error_is_that_of_the_bootstrap() -> None:
    episodes = trajectories(played(2_000, seed=4), q=true_q(TARGET))
    resampled = np.concatenate([METHODS["wdr"].estimate(episodes, c) for c in resampled_counts(2_000, resamples=400, seed=1)])
    assert influence(episodes).std() / 2_000**0.5 == pytest.approx(resampled.std(), rel=0.15)


def test_what_does_as_runs_today_differs_by_nothing_for_certain() -> None:
    episodes = trajectories(played(50, seed=5), q=true_q(TARGET))
    found = compare(episodes, episodes, **SETTINGS)
    assert (found.value, found.low, found.high, found.p_value, found.standard_error) == (0, 0, 0, 1, 0)
    behaved = compare(trajectories(played(500, seed=5), q=true_q(BEHAVIOUR), target=BEHAVIOUR), None, **SETTINGS)
    assert behaved.low < 0 < behaved.high


def test_a_better_policy_is_shown_to_be_better_by_what_it_is() -> None:
    episodes = trajectories(played(1_000, seed=6), q=true_q(TARGET))
    found, truth = compare(episodes, None, **SETTINGS), true_value(TARGET) - true_value(BEHAVIOUR)
    assert found.low < truth < found.high
    assert found.p_value < 0.01
    assert compare(episodes, None, **SETTINGS | {"beyond": 2 * truth}).p_value > 0.5


@pytest.mark.slow  # 15 s: a hundred logs
def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    truth = true_value(TARGET) - true_value(BEHAVIOUR)
    found = [compare(trajectories(played(60, seed=s), q=true_q(TARGET)), None, **SETTINGS) for s in range(100)]
    assert sum(each.low <= truth <= each.high for each in found) >= 90


def test_of_several_each_is_held_against_what_is_left_of_the_risk() -> None:
    assert holm([0.01, 0.2, 0.02], 0.05) == [True, False, True]
    assert holm([0.02, 0.2, 0.03], 0.05) == [False, False, False], "0.02 is above a third of the risk"
    assert holm([0.04], 0.05) == [True]


def test_the_tail_of_a_pareto_distribution_is_found() -> None:
    rng = np.random.default_rng(0)
    for k in (0.3, 0.6, 1.0):
        assert pareto_k(rng.pareto(1 / k, 20_000)) == pytest.approx(k, abs=0.15)
    assert pareto_k(rng.uniform(size=5_000)) < 0
    assert pareto_k(np.ones(100)) == -np.inf
    assert pareto_k(np.arange(4.0)) == -np.inf


def test_q_functions_count_where_they_were_right_and_the_weights_know_little() -> None:
    def difference(value: float, error: float) -> Difference:
        known = {"effective_episodes": 50.0, "tail": 0.1, "p_value": 0.5, "at_least": value - 2 * error}
        return Difference(value=value, low=value - 2 * error, high=value + 2 * error, standard_error=error, **known)

    known = [difference(1.0, 0.1), difference(2.0, 0.1), difference(3.0, 0.1), difference(-5.0, 20.0)]
    right = combined(known, [1.05, 1.95, 3.02, 4.0])
    assert right[3] == pytest.approx(4.0, abs=0.1)
    wrong = combined(known, [6.0, -4.0, 9.0, 4.0])
    np.testing.assert_allclose(wrong[:3], [1, 2, 3], atol=0.1)


def test_equal_values_are_no_tail() -> None:
    rng = np.random.default_rng(1)
    few_kinds = rng.choice([0.1, 0.5, 1.0, 1.2, 1.3, 1.6, 2.0, 2.1], size=500)
    assert pareto_k(few_kinds) < 0.7
    episodes = trajectories(played(500, seed=5), q=true_q(TARGET))
    assert pareto_k(influence(episodes)) < 1.0
