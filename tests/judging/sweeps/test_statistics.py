"""Statistics of few runs, against numbers found by hand, by all possible draws, and by SciPy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from offline_core.judging.sweeps.statistics import (
    expected_best,
    interquartile_mean,
    interval,
    learning_curve,
    performance_profile,
)

DRAWN: dict[str, Any] = {"resamples": 2_000, "confidence": 0.95, "seed": 0}
SCORES = st.lists(st.integers(-1000, 1000), min_size=1, max_size=9).map(lambda found: np.array(found, np.float64))


def test_the_interquartile_mean_leaves_a_quarter_out_at_either_end() -> None:
    assert interquartile_mean(np.array([100.0, 1, 2, 3, 4, 5, 6, -100])) == (2 + 3 + 4 + 5) / 4
    assert interquartile_mean(np.array([7.0, 1, 4])) == 4, "of three it is the mean"
    assert interquartile_mean(np.array([[1.0, 2, 3, 90], [4, 4, 4, 4]])).tolist() == [2.5, 4]


@given(SCORES)
def test_the_interquartile_mean_is_scipys_trimmed_mean(scores: np.ndarray) -> None:
    assert interquartile_mean(scores) == pytest.approx(scipy.stats.trim_mean(scores, 0.25))


def test_an_interval_holds_so_many_of_the_possible_draws() -> None:
    """Of (0, 1), a quarter of the draws has the mean 0, a quarter 1, and half 0.5."""
    scores = np.array([0.0, 1.0])
    assert interval(scores, **DRAWN | {"confidence": 0.4}) == (0.5, 0.5)
    assert interval(scores, **DRAWN | {"confidence": 0.6}) == (0.0, 1.0)


def test_an_interval_is_scipys() -> None:
    scores = np.random.default_rng(0).normal(100, 20, 12)
    found = interval(scores, **DRAWN)
    trimmed = scipy.stats.bootstrap(
        [scores], lambda x, axis: scipy.stats.trim_mean(x, 0.25, axis=axis), method="percentile", rng=np.random.default_rng(1)
    )
    assert found == pytest.approx(trimmed.confidence_interval, abs=1.0)


def test_a_single_run_has_no_interval() -> None:
    assert interval(np.array([1.0]), **DRAWN) is None


@given(SCORES)
def test_the_expected_best_is_the_mean_over_all_choices(scores: np.ndarray) -> None:
    wanted = [np.mean([max(each) for each in itertools.combinations(scores, n)]) for n in range(1, len(scores) + 1)]
    assert expected_best(scores) == pytest.approx(np.array(wanted))


def test_the_expected_best_of_many_is_a_number() -> None:
    found = expected_best(np.arange(2_000.0))
    assert found[[0, -1]] == pytest.approx([999.5, 1999]) and (np.diff(found) > 0).all()


def test_a_profile_is_the_share_of_scores_above() -> None:
    scores = np.array([0.0, 2.0, 1.0, 3.0])
    assert performance_profile(scores, np.array([-1.0, 0.0, 1.5, 3.0])).tolist() == [1, 0.75, 0.5, 0]


def test_a_run_that_ended_early_keeps_its_last_value() -> None:
    """Of two runs the ends of the interval are those where one of them is drawn twice."""
    curve = learning_curve([[(10, 1.0), (20, 5.0)], [(10, 3.0), (20, 7.0), (30, 9.0)], []], **DRAWN)
    assert curve == [(10, 2.0, 1.0, 3.0), (20, 6.0, 5.0, 7.0), (30, 7.0, 5.0, 9.0)]
    assert learning_curve([[]], **DRAWN) == []
