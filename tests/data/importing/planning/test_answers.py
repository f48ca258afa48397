"""What a plan cannot know is asked, and the answers make a plan that is ready."""

from __future__ import annotations

from pathlib import Path

import pytest

import offline_core as offline
from examples.logs.hotel import write
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.planning.answers import LEAVE_OUT, asked


@pytest.mark.parametrize(("fill", "quarantined"), [("0", 0), (LEAVE_OUT, 7)])
def test_answers_settle_a_log(tmp_path: Path, fill: str, quarantined: int) -> None:
    write(tmp_path / "logs", days=8)
    source, questions = str(tmp_path / "logs" / "pricing.csv"), []

    def ask(question: str, candidates: list[str]) -> str:
        questions.append(question.split(":")[0])
        return fill if LEAVE_OUT in candidates else candidates[0]

    plan = asked(ImportConfig(episodes={"max_gap": 7000}), [source], ask)
    assert questions == ["obs", "actions", "rewards", "occupancy"]
    assert plan.is_ready and plan.config.mapping["actions"] == "price"
    data = offline.import_data(source, output=tmp_path / "data", config=plan.config)
    assert data.result.counts.quarantined_rows == quarantined


@pytest.mark.parametrize("answer", [" ", "no such column"])
def test_what_is_no_answer_is_asked_again(tmp_path: Path, answer: str) -> None:
    write(tmp_path / "logs", days=1)
    plan = asked(ImportConfig(), [str(tmp_path / "logs" / "pricing.csv")], lambda *_: answer)
    assert plan.decisions[0].name == "obs" and plan.config.mapping.keys().isdisjoint({"obs", "actions", "rewards"})
