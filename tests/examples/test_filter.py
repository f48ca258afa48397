"""examples/filter.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import offline_core as offline
from examples.filter import upright
from flows.settings import read_values
from tests.examples.recordings import record


def test_it_keeps_the_episodes_whose_pole_stays_up(cartpole_policy: str, tmp_path: Path) -> None:
    recorded = record(cartpole_policy, tmp_path / "recording")
    leans = [float(np.abs(np.asarray(episode.observations)[:, 2]).max()) for episode in recorded]
    limit = sorted(leans)[8]
    filters = [{"path": "examples.filter:upright", "arguments": {"limit": limit}}]
    kept = offline.prune(tmp_path / "recording", filters=filters, output=tmp_path / "upright")
    assert kept.manifest.report == {"dropped": {"examples.filter:upright": 11}}
    expected = [episode for episode, lean in zip(recorded, leans, strict=True) if lean <= limit]
    assert list(kept.episodes()) == expected
    assert kept.manifest.operation.code.keys() == {"examples.filter:upright"}, "a changed file would be another pruning"
    assert all(upright(episode, limit=limit) for episode in expected)


def test_it_can_be_set_as_the_file_says(cartpole_policy: str, tmp_path: Path) -> None:
    recorded = record(cartpole_policy, tmp_path / "recording")
    limit = float(np.median([np.abs(np.asarray(episode.observations)[:, 2]).max() for episode in recorded]))
    setting = f"filters=[{{path: examples.filter:upright, arguments: {{limit: {limit}}}}}]"
    kept = offline.prune(tmp_path / "recording", config=read_values([setting], None), output=tmp_path / "upright")
    assert kept.manifest.report == {"dropped": {"examples.filter:upright": 10}}
