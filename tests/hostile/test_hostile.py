"""Hostile inputs: no file outside is read, nothing is asked of the network, no code runs, and an answer comes soon."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_SECONDS

ROOT = Path(__file__).parents[2]
KINDS = {"expressions": 200, "links": 45, "settings": 60, "checkpoints": 80, "payloads": 200}
"""At least so many; payloads last, as they are made in much memory, and the most ever used is what can be seen."""


@pytest.mark.slow
def test_hostile_inputs(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.hostile.watched", str(tmp_path), *KINDS],
        cwd=ROOT,
        env=os.environ | {"XDG_STATE_HOME": str(tmp_path / "state"), "POLARS_MAX_THREADS": "2"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    told = json.loads(run.stdout.rpartition("TOLD ")[2])
    for kind, least in KINDS.items():
        assert {name: each for name, each in told[kind].items() if each["happened"]} == {}, kind
        assert len(told[kind]) >= least
