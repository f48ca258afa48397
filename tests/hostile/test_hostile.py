"""Hostile inputs: no file outside is read, nothing is asked of the network, no code runs, and an answer comes soon."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KINDS = {"expressions": 200, "links": 45, "checkpoints": 80, "payloads": 200, "settings": 60}
"""At least so many."""


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_inputs(tmp_path: Path, kind: str) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.hostile.watched", kind, str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"XDG_STATE_HOME": str(tmp_path / "state"), "POLARS_MAX_THREADS": "2"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    told = json.loads(run.stdout.rpartition("TOLD ")[2])
    assert {name: each for name, each in told.items() if each["happened"]} == {}
    assert len(told) >= KINDS[kind]
