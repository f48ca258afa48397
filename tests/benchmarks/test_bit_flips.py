"""A flipped bit never silently changes what is used."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from benchmarks.bit_flips import outcomes
from tests.cases import slow_but


@pytest.mark.parametrize("flips", slow_but([46, 230], 46))
def test_none_of_some_flips_is_silent(tmp_path: Path, caplog: pytest.LogCaptureFixture, flips: int) -> None:
    caplog.set_level(logging.ERROR)
    found = outcomes(tmp_path, flips, seed=1)
    assert {kind for kind, outcome in found if outcome == "silent"} == set()
    assert found.total() == flips and len({kind for kind, _ in found}) == 18
