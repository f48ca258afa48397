"""examples/rule.py."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import offline_core as offline
from tasks.stages import check
from tests.examples.recordings import record


@pytest.mark.usefixtures("unpublished")
def test_it_finds_the_steps_that_jump(cartpole_policy: str, tmp_path: Path) -> None:
    recorded = record(cartpole_policy, tmp_path)
    jumps = [
        (episode.eps_id, t)
        for episode in recorded
        for t, change in enumerate(np.abs(np.diff(np.asarray(episode.observations), axis=0)).max(axis=1))
        if change > 0.3
    ]
    assert jumps
    config = offline.QualityConfig(rules=[offline.UserCode(path="examples.rule:Jumps", arguments={"limit": 0.3})])
    finding = offline.check(tmp_path, config=config).findings[-1]
    assert (finding.rule, finding.verdict, finding.count, finding.of) == ("jumps", "warn", len(jumps), sum(map(len, recorded)))
    assert [(example.eps_id, example.t) for example in finding.examples] == jumps[:5]
    shutil.rmtree(tmp_path / "_checks")  # lest the task finds that report
    again = check.fn(config, dataset=str(tmp_path))
    assert not again.reused and again.findings[-1] == finding
    assert f"| warn | jumps | {finding.message} |" in (tmp_path / "_checks" / "000001.md").read_text()


def test_what_does_not_jump_passes(cartpole_policy: str, tmp_path: Path) -> None:
    record(cartpole_policy, tmp_path)
    rules = [{"path": "examples.rule:Jumps", "arguments": {"limit": 5}}]
    assert offline.check(tmp_path, rules=rules).findings[-1].verdict == "pass"
