"""Robust deviations: hand-computed, by side, and unmoved by what few episodes do."""

from __future__ import annotations

import numpy as np
import pytest

from offline_core.judging.ranking import features as f
from offline_core.judging.ranking.reasons import most_unusual_run, reason
from offline_core.judging.ranking.scores import LEAST_OF_FLAG, deviations, least_deviations


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


def test_a_pause_is_told_as_a_duration() -> None:
    names = [f"{f.JUMP} time in seconds", f"{f.MEAN} sensors.tout"]
    said = reason(names, np.array([86_400.0, 4.0]), np.array([40.0, 7.0]), np.array([900.0, 1.0]), {}, threshold=6)
    assert said.split("; ") == [
        "largest jump of time 40.0 robust deviations above the median (24.0 h, usually 15 min)",
        "mean of sensors.tout 7.0 robust deviations above the median (4, usually 1)",
    ]
