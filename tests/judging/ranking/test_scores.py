"""Robust deviations: hand-computed, by side, and unmoved by what few episodes do."""

from __future__ import annotations

import numpy as np
import pytest

from offline_core.judging.ranking import features as f
from offline_core.judging.ranking.outliers import LEAST_OF_FLAG, deviations, least_deviations
from offline_core.judging.ranking.reasons import ACTIONS, Standing, most_unusual_run, reason, standings


def test_by_hand() -> None:
    """0 to 100: the median is 50, the quartiles 25 and 75, the quantiles of 5 % are 5 and 95."""
    values = np.arange(101.0)[:, None]
    found = deviations(values, np.array([1e-9]), 0.05)[:, 0]
    by_quartile, by_tail = 25 / 0.6744897501960817, 45 / 1.6448536269514722
    assert found[100] == pytest.approx(50 / max(by_quartile, by_tail))
    assert found[50] == 0 and found[0] == pytest.approx(-found[100])


def test_each_side_has_its_own_deviation() -> None:
    values = np.concatenate([-np.arange(1, 51) / 10, [0.0], np.arange(1, 51) * 10.0])[:, None]
    found = deviations(values, np.array([1e-9]), 0.05)[:, 0]
    assert found.max() == pytest.approx(-found.min())


def test_what_few_do_moves_nothing_and_what_many_do_is_no_outlier() -> None:
    rng = np.random.default_rng(0)
    usual = rng.normal(size=1000)
    few, far = (np.concatenate([usual[20:], np.full(20, value)])[:, None] for value in (50.0, 1e9))
    least = np.array([1e-9])
    assert (deviations(few, least, 0.05)[-20:] > 20).all()
    assert np.array_equal(deviations(few, least, 0.05)[:-20], deviations(far, least, 0.05)[:-20])
    many = np.concatenate([usual, np.full(80, 50.0)])[:, None]
    assert np.abs(deviations(many, least, 0.05)).max() < 6


def test_nan_is_not_known_and_constants_are_not_far_from_a_trifle() -> None:
    values = np.array([[500.0, np.nan], [500.0, np.nan], [480.0, np.nan], [np.nan, np.nan]] * 10)
    least = least_deviations([f.LENGTH, f.CUT], values)
    assert least.tolist() == [25.0, LEAST_OF_FLAG]
    found = deviations(values, least, 0.05)
    assert np.abs(found).max() < 1 and (found[:, 1] == 0).all()


def test_the_run_of_steps_that_are_unusual() -> None:
    signal = np.array([0, 0, 3, 2, 0.5, 4, 0, 0, 2.0])
    assert most_unusual_run(signal, 1.0) == (2, 5)


@pytest.mark.parametrize("kind", [f.MEAN, f.SPREAD, f.JUMP])
def test_a_number_without_a_scale_is_as_far_as_a_flag(kind: str) -> None:
    """All episodes have 0, but one: that is an outlier, and not one of 10^25 deviations."""
    values = np.array([[0.0]] * 40 + [[8.64e13]])
    found = deviations(values, least_deviations([f"{kind} time"], values), 0.05)
    assert found[-1, 0] == pytest.approx(1 / LEAST_OF_FLAG) and (found[:-1] == 0).all()


def test_a_longer_pause_is_measured_by_the_usual_one() -> None:
    values = np.array([[900.0]] * 40 + [[86_400.0]])
    found = deviations(values, least_deviations([f"{f.JUMP} time in seconds"], values), 0.05)
    assert found[-1, 0] == pytest.approx((86_400 - 900) / (0.05 * 900))


def standing_of(values: np.ndarray, deviations: np.ndarray, row: int) -> Standing:
    [found] = standings(values, deviations, np.array([row]))
    return found


def test_a_reason_says_how_many_are_nearer_and_by_how_much() -> None:
    """A feature of 1,001 episodes; three are as high as the one, and of one it is not known."""
    names = [f.RETURN, f.LENGTH, f"{f.STILL} sensors.tout"]
    values = np.tile(np.array([20.0, 8.0, 0.1]), (1001, 1))
    values[:4, 0], values[4, 0], values[0, 1:] = 500.0, np.nan, (3, 1.0)
    deviations = np.zeros_like(values)
    deviations[0] = [12.3, -7.0, 2000.0]
    said = reason(names, standing_of(values, deviations, 0), np.array([20.0, 8.0, 0.1]), {}, threshold=6)
    assert said.split("; ") == [
        "share of unchanged sensors.tout 100 %, higher than in all other episodes (over 1,000 standard deviations above the "
        "median of 10 %)",
        "return 500, higher than in 99.6 % of the episodes (12.3 standard deviations above the median of 20)",
        "length 3 steps, shorter than in all other episodes (7.0 standard deviations below the median of 8 steps)",
    ]


def test_a_surprise_is_told_by_what_it_is_of_and_where() -> None:
    values = np.array([[0.0], [0.1], [0.2], [4.0]])
    found = standing_of(values, np.array([[0.0], [0], [0], [9.0]]), 3)
    assert reason([ACTIONS], found, np.array([0.1]), {ACTIONS: (3, 1200)}, threshold=6) == (
        "actions are expected less than in all other episodes (a surprise 9.0 standard deviations above the median, most in "
        "steps 3 to 1,200)"
    )


def test_a_pause_is_told_as_a_duration() -> None:
    names = [f"{f.JUMP} time in seconds", f"{f.MEAN} sensors.tout"]
    found = standing_of(np.array([[900.0, 1], [900, 1], [86_400, 4]]), np.array([[0.0, 0], [0, 0], [40, 7]]), 2)
    assert reason(names, found, np.array([900.0, 1.0]), {}, threshold=6).split("; ") == [
        "largest jump of time 24.0 h, higher than in all other episodes (40.0 standard deviations above the median of 15 min)",
        "mean of sensors.tout 4, higher than in all other episodes (7.0 standard deviations above the median of 1)",
    ]
