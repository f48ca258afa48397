"""examples/filter.py."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import offline_core as offline
from examples.filter import upright
from offline_core.datasets.dataset import versions
from offline_core.datasets.reader import episodes
from tests.examples.recordings import record


def test_it_keeps_the_episodes_whose_pole_stays_up(cartpole_policy: str, tmp_path: Path) -> None:
    recorded = record(cartpole_policy, tmp_path / "recording")
    leans = [float(np.abs(np.asarray(episode.observations)[:, 2]).max()) for episode in recorded]
    limit = sorted(leans)[8]
    filters = [{"path": "examples.filter:upright", "arguments": {"limit": limit}}]
    kept = offline.prune(tmp_path / "recording", filters=filters, output=tmp_path / "upright")
    assert kept.manifest.report == {"dropped": {"examples.filter:upright": 11}}
    expected = [episode for episode, lean in zip(recorded, leans, strict=True) if lean <= limit]
    assert list(episodes(kept)) == expected
    assert kept.manifest.operation.code.keys() == {"examples.filter:upright"}, "a changed file would be another pruning"
    assert all(upright(episode, limit=limit) for episode in expected)


@pytest.mark.usefixtures("prefect_server")
def test_the_command_line_does_the_same(cartpole_policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flows.cli import main

    recorded = record(cartpole_policy, tmp_path / "runs" / "recording")
    limit = float(np.median([np.abs(np.asarray(episode.observations)[:, 2]).max() for episode in recorded]))
    setting = f"filters=[{{path: examples.filter:upright, arguments: {{limit: {limit}}}}}]"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "argv", ["offline", "prune", "runs/recording", "runs/upright", "-s", setting])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert versions("runs/upright") == [1]
    assert offline.open_dataset("runs/upright").manifest.report == {"dropped": {"examples.filter:upright": 10}}
    assert "| Dropped by examples.filter:upright | 10 episodes |" in Path("runs/upright/_cards/000001.md").read_text()
