"""The side-by-side benchmark: its counting and its arithmetic on tiny data, and its table in the README."""

from __future__ import annotations

import base64
import io
import json
import pickle
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gymnasium as gym
import lz4.frame
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.vs_rllib import measuring, our_side
from benchmarks.vs_rllib.counting import converted, learned_from, of_episodes, on_disk, steps_of
from benchmarks.vs_rllib.report import digits, figures, page, span, table, write
from benchmarks.vs_rllib.runs import SideRun, append, read, source_of
from benchmarks.vs_rllib.summary import summary
from benchmarks.vs_rllib.task import HIDDEN_SIZES, Task, play
from offline_core.data.episodes import Episode, encode
from tests.waiting import is_over, wait_until

ROOT = Path(__file__).parents[2]


def episode(name: str, length: int, *, truncated: bool = True) -> Episode:
    """States that come nowhere twice, the first one like CartPole's."""
    number = sum(map(ord, name))
    observations = (1000.0 * number + np.arange(4 * (length + 1), dtype=np.float32)).reshape(-1, 4)
    observations[0] = 1e-4 * number
    return Episode(
        eps_id=name,
        observations=observations,
        actions=np.arange(length) % 2,
        rewards=np.ones(length),
        truncated=truncated,
        observation_space=gym.spaces.Box(-np.inf, np.inf, (4,), np.float32),
        action_space=gym.spaces.Discrete(2),
    )


A, B = episode("a", 3), episode("b", 5)
WHOLE = of_episodes([A, B])
NOTHING_AMISS = dict.fromkeys(["duplicate_rows", "episodes_lost", "episodes_incomplete", "episode_copies"], 0)


def without(number: int) -> pl.DataFrame:
    return WHOLE.with_row_index().filter(pl.col("index") != number).drop("index")


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (WHOLE, {"rows": 8, "steps": 8, "episodes": 2, **NOTHING_AMISS}),
        (
            of_episodes([A, B, A]),
            {"rows": 11, "steps": 8, "episodes": 2, **NOTHING_AMISS, "duplicate_rows": 3, "episode_copies": 1},
        ),
        (of_episodes([A]), {"episodes": 1, "episodes_lost": 1}),
        *((without(number), {"episodes": 1, "episodes_incomplete": 1, "episodes_lost": 1}) for number in range(3)),
        (of_episodes([A, episode("b", 5, truncated=False)]), {"episodes": 1, "episodes_incomplete": 1}),
    ],
    ids=["whole", "written again", "not there", "no first step", "no second step", "no last step", "no end"],
)
def test_episodes_and_steps_are_counted(steps: pl.DataFrame, expected: dict[str, int]) -> None:
    assert expected.items() <= on_disk(steps, asked=2).items()


def packed(array: np.ndarray) -> str:
    """As RLlib's tables have it."""
    buffer = io.BytesIO()
    pickle.dump(array, buffer, protocol=5)
    return base64.b64encode(lz4.frame.compress(buffer.getvalue())).decode()


@pytest.mark.parametrize("form", ["episodes", "table", "packed table"])
def test_the_forms_on_disk_are_counted_alike(tmp_path: Path, form: str) -> None:
    episodes = [A, B]
    if form == "episodes":
        contents: dict[str, Any] = {"item": [encode(each) for each in episodes]}
    else:
        as_stored = packed if form == "packed table" else list
        ends = np.concatenate([np.arange(len(each)) == len(each) - 1 for each in episodes])
        contents = {
            "eps_id": [each.eps_id for each in episodes for _ in range(len(each))],
            "obs": [as_stored(row) for each in episodes for row in each.observations[:-1]],
            "actions": np.concatenate([each.actions for each in episodes]),
            "new_obs": [as_stored(row) for each in episodes for row in each.observations[1:]],
            "terminateds": np.zeros(8, bool),
            "truncateds": ends,
        }
    (tmp_path / "run-000001").mkdir()
    pq.write_table(pa.table(contents), tmp_path / "run-000001" / "part.parquet")

    assert steps_of(str(tmp_path)).equals(of_episodes(episodes))


def test_the_loop_of_the_document_loses_two_steps_of_each_episode_and_makes_one_up() -> None:
    whole = episode("a", 5)
    converted_ = Episode(
        eps_id="a",
        observations=np.concatenate([whole.observations[:4], whole.observations[5:]]),
        actions=whole.actions[:4],
        rewards=whole.rewards[:4],
        truncated=True,
        observation_space=whole.observation_space,
        action_space=whole.action_space,
    )

    found = converted(of_episodes([whole, whole]), of_episodes([converted_]))

    assert (found["source_rows"], found["source_steps"]) == (10, 5)
    assert (found["steps_kept"], found["steps_lost"], found["steps_made_up"]) == (3, 2, 1)


def test_steps_that_were_learned_from_count_once() -> None:
    recording = episode("a", 5)
    batches = {"obs": recording.observations[[0, 1, 1, 0, 3]], "actions": recording.actions[[0, 1, 1, 0, 3]]}

    found = learned_from(of_episodes([recording]), batches)

    assert found == {"rows": 5, "steps_seen": 3, "steps": 5, "steps_unknown": 0}


def test_batches_with_steps_of_no_recording_are_told() -> None:
    found = learned_from(of_episodes([episode("a", 5)]), {"obs": np.full((2, 4), 0.5), "actions": np.zeros(2, int)})

    assert (found["steps_seen"], found["steps_unknown"]) == (0, 1)


def report(*runs: SideRun) -> dict[str, Any]:
    return {
        "date": "2026-01-02",
        "settings": {"target_return": 450.0, "limit_seconds": 900.0},
        "machine": {"cpu": "a CPU", "cores": 2, "memory_gib": 8, "system": "Linux"},
        "versions": {"ray": "2.60.0"},
        "changes": ["a change"],
        "runs": [asdict(run) for run in runs],
    }


def bc(side: str, round: int, seconds: float, outcome: Any = "finished", **fields: Any) -> SideRun:
    parts = {"stage": seconds - 1} if outcome == "finished" else {}
    return SideRun("bc", side, round, outcome, seconds=seconds, parts=parts, **fields)


def test_our_clones_learn_as_the_document_has_it() -> None:
    config = our_side.training(Task("marwil_seen", ""))
    assert (config.algorithm, config.network.hidden_sizes) == ("marwil", [*HIDDEN_SIZES])


def test_ratios_are_of_medians() -> None:
    runs = [bc("rllib", n, seconds) for n, seconds in enumerate((80, 100, 300))] + [bc("our", n, 4 + n) for n in range(3)]
    [stage] = summary(report(*runs))

    assert (stage.rllib.seconds, stage.our.seconds, stage.ratio, stage.bound) == (100, 5, 20, "")
    assert stage.stage_ratio == 99 / 4


@pytest.mark.parametrize(
    ("rllib", "our", "ratio", "bound"),
    [("limit", "finished", 9, "at least"), ("finished", "limit", 9, "at most"), ("limit", "limit", None, "at least")],
)
def test_a_side_that_was_ended_makes_the_ratio_a_bound(rllib: Any, our: Any, ratio: float | None, bound: str) -> None:
    found = report(bc("rllib", 0, 900, rllib), bc("our", 0, 100, our))
    [stage] = summary(found)

    assert (stage.ratio, stage.bound, stage.stage_ratio) == (ratio, bound, None)
    assert "ended" in table(found)


def test_a_side_that_failed_is_not_left_out() -> None:
    found = report(bc("rllib", 0, 3, "error", message="it broke"), bc("our", 0, 4))

    assert "| 4.0 s (3.0) | 1 of 1 failed | – |" in table(found)
    assert {"name": "vs_rllib.bc.failed", "value": 1, "unit": "runs", "side": "rllib"} in figures(found)
    assert "it broke" in page(found, "x.png")


def test_a_side_that_lacked_what_it_begins_with_was_not_run() -> None:
    found = report(bc("rllib", 0, 0, "not_run", message="It needs an expert."), bc("our", 0, 4))

    assert "| 4.0 s (3.0) | 1 of 1 not run | – |" in table(found)
    assert "It needs an expert." in page(found, "x.png")


def test_figures_have_the_names_that_were_asked_for() -> None:
    stages = ("expert", "record_episodes", "record_table", "convert", "bc", "marwil")
    runs = [SideRun(s, side, 0, "finished", 2.0, {"stage": 1.0}) for s in stages for side in ("rllib", "our")]

    assert [line["name"] for line in figures(report(*runs))] == [f"vs_rllib.{stage}.ratio" for stage in stages]


def test_the_table_shows_counts_of_both_sides_and_where_rounds_differ() -> None:
    counted = {"episodes": 500, "episodes_lost": 0, "episodes_incomplete": 0, "episode_copies": 0}
    counted |= {"steps": 1000, "duplicate_rows": 0, "files": 2}
    worse = counted | {"episodes": 480, "episodes_lost": 20}
    runs = [
        SideRun("record_episodes", side, number, "finished", 10.0, {"stage": 5.0}, counts=found)
        for side, found_ in (("our", (counted, counted)), ("rllib", (counted, worse)))
        for number, found in enumerate(found_)
    ]

    assert "| 500, 0, 0, 0 | 480 to 500, 0 to 20, 0, 0 |" in table(report(*runs))


def test_numbers_in_words() -> None:
    assert [span([1.0]), span([2, 1, 2]), span([1234.56])] == ["1", "1 to 2", "1,234.6"]
    assert [digits(value) for value in (123.4, 12.3, 1.234, 0.56)] == ["123", "12", "1.2", "0.56"]


def test_a_report_is_three_files_and_its_json_makes_its_table_again(tmp_path: Path) -> None:
    found = report(bc("rllib", 0, 900, "limit"), bc("our", 0, 5), SideRun("convert", "rllib", 0, "error"))
    write(found, str(tmp_path / "results" / "x-vs_rllib"))

    again = json.loads((tmp_path / "results" / "x-vs_rllib.json").read_text())
    assert table(again) == table(found)
    assert table(found) in (tmp_path / "results" / "x-vs_rllib.md").read_text()
    assert (tmp_path / "results" / "x-vs_rllib.png").read_bytes().startswith(b"\x89PNG")


def test_what_was_measured_is_found_again_and_what_could_not_be_run_is_tried_again(tmp_path: Path) -> None:
    append(tmp_path, bc("our", 0, 0.0, "not_run"))
    append(tmp_path, bc("our", 0, 5.0))

    assert read(tmp_path) == [bc("our", 0, 5.0)]
    assert read(tmp_path / "elsewhere") == []


def test_a_stage_begins_with_what_finished_before_it() -> None:
    runs = [
        SideRun("expert", "our", 0, "limit"),
        SideRun("expert", "our", 1, "finished", facts={"policy": "p"}),
        SideRun("record_episodes", "our", 0, "finished", facts={"data": "ours"}),
        SideRun("record_episodes", "rllib", 0, "finished", facts={"data": "theirs"}),
    ]

    assert source_of("expert", "our", runs) == (None, "")
    assert source_of("record_table", "our", runs) == ("p", "")
    assert source_of("record_table", "rllib", runs) == (None, "expert by rllib")
    assert source_of("bc_seen", "our", runs) == ("theirs", "")


@pytest.mark.slow
def test_a_process_beyond_its_limit_is_ended_with_all_that_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        "import os, subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)'])\n"
        f"open({str(tmp_path / 'begun')!r}, 'w').write(str(child.pid))\n"
        f"os.rename({str(tmp_path / 'begun')!r}, {str(tmp_path / 'child')!r})\n"
        "time.sleep(3600)"
    )
    monkeypatch.setattr(measuring, "command", lambda side, task: [sys.executable, "-c", script])

    class Begun(subprocess.Popen[Any]):
        """The limit begins when the child is there, however long that takes."""

        def wait(self, timeout: float | None = None) -> int:
            wait_until((tmp_path / "child").exists, what="the child")
            return super().wait(timeout)

    monkeypatch.setattr(subprocess, "Popen", Begun)

    run = measuring.measure(Task("bc", str(tmp_path / "run")), "our", 0, limit_seconds=0.1)

    assert run.outcome == "limit"
    assert run.seconds >= 0.1
    assert is_over(int((tmp_path / "child").read_text()))


def test_a_process_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "command", lambda side, task: [sys.executable, "-c", "raise SystemExit('no luck')"])
    run = measuring.measure(Task("bc", str(tmp_path / "run")), "our", 0, limit_seconds=30.0)

    assert (run.outcome, run.message) == ("error", "no luck")


def test_played_returns_are_of_whole_episodes() -> None:
    found = play(lambda observations: (observations[:, 2] + observations[:, 3] > 0).astype(int), target=2)

    assert found["episodes"] == 2
    assert 100 < found["return"] <= 500


@pytest.mark.slow
def test_the_table_in_the_readme_is_what_the_command_prints() -> None:
    shown = re.search(r"<!-- vs_rllib -->\n(.*?)\n<!-- /vs_rllib -->", (ROOT / "README.md").read_text(), re.DOTALL)
    results = sorted((ROOT / "benchmarks" / "results").glob("*-vs_rllib.json"))
    assert shown is not None
    command = [sys.executable, "-m", "benchmarks.vs_rllib", "--table", str(results[-1])]
    printed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout

    assert shown[1].strip() == printed.strip()
