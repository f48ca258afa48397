"""Intervals by resampling episodes."""

from __future__ import annotations

import numpy as np
import pytest

from offline_core.judging.estimation import bootstrap
from offline_core.judging.estimation.bootstrap import MOST_GROUPS, Groups, interval, resampled_counts


def mean_of(values: np.ndarray):
    return lambda counts: (counts @ values) / counts.sum(axis=1)


def test_each_resample_is_of_as_many_episodes_as_there_are() -> None:
    [counts] = resampled_counts(7, resamples=50, seed=0)
    assert counts.shape == (50, 7) and (counts.sum(axis=1) == 7).all() and counts.std() > 0.5


def test_few_episodes_are_drawn_each_for_itself_and_many_in_groups_of_one_size_by_lot() -> None:
    few = Groups.by_lot(MOST_GROUPS)
    assert (few.of == np.arange(MOST_GROUPS)).all() and (few.sizes == 1).all()
    many = Groups.by_lot(3 * MOST_GROUPS + 5)
    assert many.number == MOST_GROUPS and {*many.sizes.tolist()} == {3, 4}
    assert (many.of == Groups.by_lot(3 * MOST_GROUPS + 5).of).all(), "of all candidates the same"
    assert abs(np.corrcoef(many.of, np.arange(len(many.of)))[0, 1]) < 0.03, "not by their order"


def test_sums_of_groups() -> None:
    groups = Groups(np.array([1, 0, 1], np.uint8), 3)
    assert groups.sums(np.array([1.0, 2.0, 4.0])).tolist() == [2, 5, 0]
    assert groups.sums(np.array([[1.0, 0.5], [2.0, 0.0], [4.0, 1.0]])).tolist() == [[2, 0], [5, 1.5], [0, 0]]
    assert groups.part(1, 3).sums(np.array([2.0, 4.0])).tolist() == [2, 4, 0]


def test_the_seed_decides_and_the_memory_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).normal(size=30)
    whole = interval(mean_of(values), 30, resamples=100, confidence=0.9, seed=1)
    assert whole != interval(mean_of(values), 30, resamples=100, confidence=0.9, seed=2)
    monkeypatch.setattr(bootstrap, "COUNTS_AT_A_TIME", 64)
    assert interval(mean_of(values), 30, resamples=100, confidence=0.9, seed=1) == pytest.approx(whole, rel=1e-12)


def test_it_is_as_wide_as_the_standard_error_says_and_covers_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    covered, widths = [], []
    for _ in range(200):
        values = rng.normal(5, 2, size=100)
        low, high = interval(mean_of(values), 100, resamples=300, confidence=0.9, seed=0)
        covered.append(low <= 5 <= high)
        widths.append(high - low)
    assert np.mean(widths) == pytest.approx(2 * 1.645 * 2 / 10, rel=0.07)
    assert 0.83 < np.mean(covered) < 0.96


def test_resamples_without_an_estimate_may_have_come_to_anything() -> None:
    """Of 3 episodes, the first is in none of (2/3)³ = 30 % of the resamples."""

    def found(counts: np.ndarray) -> np.ndarray:
        return np.where(counts[:, 0] > 0, 1.0, np.nan)

    assert interval(found, 3, resamples=1_000, confidence=0.3, seed=0) == (1.0, 1.0), "35 % may lie outside on each side"
    assert interval(found, 3, resamples=1_000, confidence=0.5, seed=0) == (-np.inf, np.inf), "25 % may"
    assert interval(lambda counts: np.full(len(counts), np.nan), 3, resamples=50, confidence=0.5, seed=0) == (-np.inf, np.inf)


def test_an_end_may_be_infinite() -> None:
    low, high = interval(lambda counts: np.where(counts[:, 0] > 0, np.inf, 0.0), 3, resamples=90, confidence=0.9, seed=0)
    assert (low, high) == (0.0, np.inf)
