"""What a plan cannot know is asked, and the answers make a plan that is ready."""

from __future__ import annotations

from pathlib import Path

import pytest

import offline_core as offline
from examples.logs.hotel import write
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.planning.answers import ALL, LEAVE_OUT, asked


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


def test_the_last_reading_is_offered_first_for_a_gap_in_what_is_observed(tmp_path: Path) -> None:
    rows = [f"{room},{t},{'' if t in (0, 3) else 20 + t},{t % 3},1.5" for room in "ab" for t in range(6)]
    (tmp_path / "log.csv").write_text("\n".join(["room,t,room temp,valve,reward", *rows, ""]))
    questions = list[str]()

    def ask(question: str, candidates: list[str]) -> str:
        questions.append(question)
        return "room temp" if question.startswith("obs:") else candidates[0]

    plan = asked(
        ImportConfig(mapping={"actions": "valve", "rewards": "reward", "eps_id": "room"}), [str(tmp_path / "log.csv")], ask
    )
    assert plan.is_ready and plan.config.mapping["obs"] == ["room temp_known"]
    assert [question.partition(":")[0] for question in questions] == ["obs", "room temp", "room temp"]
    shown = str(plan)
    assert "e+38" not in shown and "left out" not in shown
    made = offline.import_data(tmp_path / "log.csv", output=tmp_path / "data", config=plan.config)
    assert made[0].observations[:6, 0].tolist() == [22, 21, 22, 22, 24, 25]  # the first is the median


@pytest.mark.parametrize("answer", [" ", "no such column"])
def test_what_is_no_answer_is_asked_again(tmp_path: Path, answer: str) -> None:
    write(tmp_path / "logs", days=1)
    plan = asked(ImportConfig(), [str(tmp_path / "logs" / "pricing.csv")], lambda *_: answer)
    assert plan.decisions[0].name == "obs" and plan.config.mapping.keys().isdisjoint({"obs", "actions", "rewards"})


def test_all_that_may_be_observed_is_offered_first(tmp_path: Path) -> None:
    rows = [f"s{day},2026-05-{day + 1:02d}T0{hour}:00:00,{hour},{hour * 2},Hold,1.5" for day in range(4) for hour in range(6)]
    (tmp_path / "log.csv").write_text("\n".join(["sailing,updated at,seats,load,step,eur", *rows, ""]))
    given = {"eps_id": "sailing", "t": "updated at", "actions": "step", "rewards": "eur"}
    questions = dict[str, list[str]]()

    def ask(question: str, candidates: list[str]) -> str:
        questions[question.partition(":")[0]] = candidates
        return candidates[0]

    plan = asked(ImportConfig(mapping=given), [str(tmp_path / "log.csv")], ask)
    assert questions["obs"][0] == ALL and plan.config.mapping["obs"] == questions["obs"][1:] == ["seats", "load"]
