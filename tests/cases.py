"""Parameters of tests of which most wait for `make test-all`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest


def slow_but(cases: Iterable[Any], *quick: object) -> list[Any]:
    """All cases, of which those that are not named are slow; a tuple is one case of several parameters."""
    return [case if case in quick else _slow(*case) if isinstance(case, tuple) else _slow(case) for case in cases]


def _slow(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


def examples(most: int) -> int:
    """How many examples a property is tried with: `most` by 'make test-all', a quarter of them by 'make test'."""
    return most if os.environ.get("HYPOTHESIS_PROFILE", "quick") != "quick" else max(10, most // 4)
