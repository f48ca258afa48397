"""Numbers as people read them."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pytest

from offline_core.runtime.units import count_text, list_text, number_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *[(0.045771, "0.04577"), (57.0512, "57.05"), (11631.2, "11,630"), (-1197.2, "-1,197"), (2.5e7, "2.5e+07")],
        *[(6.1e-17, "0"), (-6.1e-17, "0"), (3e-5, "3e-05"), (1.23456e-10, "1.235e-10"), (np.float64(1e300), "1e+300")],
    ],
)
def test_numbers_have_four_digits_and_thousands(value: float, text: str) -> None:
    assert number_text(value) == text
    assert number_text(abs(value), sign="+").startswith("+")


def test_a_noun_whose_plural_is_irregular_brings_it() -> None:
    assert [count_text(number, "policy", "policies") for number in (1, 1200)] == ["1 policy", "1,200 policies"]


@pytest.mark.parametrize(
    ("values", "most", "text"),
    [([], 2, ""), (["a", 7], 2, "a, 7"), (["a", "b", "c"], 2, "a, b and 1 more"), (range(2002), 1, "0 and 2,001 more")],
)
def test_a_long_list_says_how_many_more_there_are(values: Collection[object], most: int, text: str) -> None:
    assert list_text(values, most) == text
