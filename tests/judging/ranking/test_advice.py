"""What measures speak for: each rule once, and how sure it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from offline_core.judging.ranking.advice import advise
from offline_core.judging.ranking.measures import Measures, density_of, measures_of


def measured(returns: Any, **changes: Any) -> Measures:
    given: dict[str, Any] = {"target": None, "noise": np.full(4, 0.3), "coverage": 0.5, "density": 0.1, "is_box": False}
    returns = np.asarray(returns, float)
    return measures_of(returns, np.full(len(returns), 100), **given | changes)


@pytest.mark.parametrize(
    ("measures", "target", "kind", "first"),
    [
        (measured(np.full(200, 500.0)), None, "expert", "bc"),
        (measured(np.full(200, 500.0), noise=np.ones(4)), None, "random", "iql"),
        (measured(np.full(200, 500.0), noise=np.ones(4), is_box=True), None, "random", "td3_bc"),
        (measured(np.full(200, 20.0), target=500.0), 500.0, "one_policy", "marwil"),
        (measured(np.r_[np.full(150, 20.0), np.full(50, 500.0)]), None, "mixed", "bc on the best episodes"),
        (measured(np.linspace(0, 1, 200) ** 8 * 500), None, "mixed", "iql"),
    ],
)
def test_what_the_data_speaks_for(measures: Measures, target: float | None, kind: str, first: str) -> None:
    advice = advise(measures, target=target)
    assert advice.kind == kind and advice.first.startswith(first)
    assert "arXiv" in advice.source and advice.first in str(advice)


def test_little_data_speaks_with_little_confidence() -> None:
    assert advise(measured(np.full(20, 500.0))).confidence == "low"
    assert advise(measured(np.full(200, 500.0))).confidence == "high"


def test_measures_by_hand() -> None:
    found = measured(np.r_[np.zeros(50), np.full(50, 10.0)])
    assert (found.expertise, found.near_best, found.spread) == (0.5, 0.5, 1.0)
    assert density_of(np.array([0.0, 0.0, 1.0, -1.0])) == 0.5
