"""A flipped bit never silently changes what is used."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from benchmarks.bit_flips import outcomes


def test_none_of_some_flips_is_silent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    found = outcomes(tmp_path, 120, seed=1)
    assert {kind for kind, outcome in found if outcome == "silent"} == set()
    assert found.total() == 120 and len({kind for kind, _ in found}) == 9
