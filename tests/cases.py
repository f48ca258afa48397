"""Parameters of tests of which most wait for `make test-all`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def slow_but(cases: Iterable[Any], *quick: object) -> list[Any]:
    """All cases, of which those that are not named are slow."""
    return [case if case in quick else pytest.param(case, marks=pytest.mark.slow) for case in cases]
