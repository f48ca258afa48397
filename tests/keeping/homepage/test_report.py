"""The home page of a root: what is in its data, and what bad input makes of it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import offline_core as offline
from offline_core.data.datasets.manifest import Parent
from offline_core.data.datasets.result_cache import store_result
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.data.inputs.row_steps import RowSteps
from offline_core.data.store.json_files import line_of
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError, StorageError
from offline_core.keeping.homepage.explorer import choose, listed
from offline_core.keeping.homepage.runs import parameters_of
from offline_core.keeping.homepage.signals import MAX_POINTS, signals_of
from offline_core.keeping.inspection import card_at
from offline_core.policies.manifest import read_policy_manifest
from tests.data.datasets.factories import episode, write_dataset
from tests.judging.decisions.made_up import made_up

HOSTILE = "</script><script>alert(1)<!--"


def data_of(page: Path) -> dict[str, Any]:
    """What the page's script reads."""
    found = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page.read_text("utf-8"), re.DOTALL)
    assert len(found) == 1
    return dict(json.loads(found[0])["values"])


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with a recording, a check, outliers, a training that goes on, and an evaluation."""
    runs = tmp_path_factory.mktemp("roots") / "runs"
    write_dataset(runs / "recording", [episode(i, 30) for i in range(30)], "table")
    offline.check(runs / "recording")
    offline.outliers(runs / "recording", output=runs / "outliers")
    offline.train(runs / "recording", algorithm="bc", optimizer={"max_epochs": 2}, output=runs / "policy")
    going_on = runs / "going on"
    going_on.mkdir()
    lines = [line_of({"updates": 3 * i, "loss": 2 - i / 2}) for i in (1, 2, 3)]
    (going_on / "metrics.jsonl").write_bytes(b"".join(lines)[:-40])  # the last one is cut off
    return runs


def test_a_root_is_told_whole(root: Path, tmp_path: Path) -> None:
    result = offline.report(root, output=tmp_path / "page.html", episodes=10)
    assert (result.datasets, result.runs, result.problems) == (1, 2, [])
    assert (result.episodes, result.episodes_with_steps) == (30, 10)
    assert result.bytes == (tmp_path / "page.html").stat().st_size
    data = data_of(tmp_path / "page.html")
    dataset, episodes = data["dataset"]["recording"], data["episodes"]["recording"]
    assert dataset["quality"]["verdict"] == dataset["versions"][0]["verdict"]
    assert data["episode"]["recording"].keys() == episodes["chosen"].keys()
    assert set(episodes["chosen"].values()) == {"best", "worst", "median", "outlier", "sample"}
    assert len(episodes["score"]) == len(episodes["id"]) == 30
    best = next(row for row, why in episodes["chosen"].items() if why == "best")
    assert episodes["return"][int(best)] == max(episodes["return"])
    assert [node["lines"][0] for node in data["graph"]["nodes"]] == ["recording version 1", "policy/best"]
    assert data["graph"]["edges"] == [[0, 1]]
    assert [node["page"] for node in data["graph"]["nodes"]] == [["dataset", "recording"], ["policy", "policy/best"]]


def test_a_training_that_goes_on_is_named_with_its_curve_so_far(root: Path, tmp_path: Path) -> None:
    offline.report(root, output=tmp_path / "page.html")
    data = data_of(tmp_path / "page.html")
    run = dict(zip(data["runs"]["fields"], data["runs"]["rows"]["going on"], strict=True))
    assert run["status"] == "not finished" and run["updates"] == 6
    assert data["curves"]["going on"]["loss"] == [[3, 6], [1.5, 1.0]]


def test_a_training_that_failed_says_why_until_the_next_one_begins(root: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    shutil.copytree(root, runs)

    def train(enough: int) -> None:
        def look(record: Mapping[str, float]) -> None:
            if record["updates"] >= enough:
                raise ConfigError("It has learned enough. password=hunter2")

        offline.train(runs / "recording", algorithm="bc", optimizer={"max_epochs": 3}, output=runs / "bad", on_metrics=look)

    with pytest.raises(ConfigError):
        train(1)
    offline.report(runs, output=tmp_path / "page.html")
    data = data_of(tmp_path / "page.html")
    run = dict(zip(data["runs"]["fields"], data["runs"]["rows"]["bad"], strict=True))
    told = "ConfigError: It has learned enough. password=***"
    assert (run["status"], run["level"], run["told"]) == ("failed", "bad", told)
    assert (run["algorithm"], run["dataset"], run["seed"]) == ("bc", "recording v1", 0)
    assert run["parameters"] == {"optimizer.max_epochs": 3}
    assert data["overview"]["failed"].keys() == {"bad"}
    assert [each.what for each in offline.list(runs, kind="training").entries if each.name == "bad"] == [f"failed: {told}"]
    assert card_at(str(runs / "bad")).headline == f"Failed: {told}"
    failed = (runs / "bad" / "failure.json").read_bytes()
    train(10**9)
    assert not (runs / "bad" / "failure.json").exists()
    (runs / "bad" / "failure.json").write_bytes(failed)  # of a run that has lost the folder
    offline.report(runs, output=tmp_path / "page.html")
    assert data_of(tmp_path / "page.html")["overview"]["failed"] == {}
    assert card_at(str(runs / "bad")).verdict != "bad"


def test_of_policies_that_are_alike_one_that_something_was_made_of_stays_a_box(root: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    shutil.copytree(root, runs)
    policies = [root / "policy/best"]
    for seed in range(1, 6):
        made = offline.train(runs / "recording", optimizer={"max_epochs": 1}, seed=seed, output=runs / f"seed {seed}")
        policies.append(Path(made.checkpoint))
    played = [Parent(kind="checkpoint", uri=str(policies[1]), fingerprint=read_policy_manifest(str(policies[1])).fingerprint)]
    write_dataset(runs / "recorded", [episode(1)], parents=played)
    offline.report(runs)
    graph = data_of(runs / "report.html")["graph"]
    boxes = {node["lines"][0]: node for node in graph["nodes"]}
    assert boxes.keys() == {"recording version 1", "5 policies", "seed 1/best", "recorded version 1"}
    assert boxes["5 policies"]["page"] == ["policies"] and not any(node["is_outside"] for node in boxes.values())


@pytest.mark.parametrize("is_done", [True, False])
def test_what_a_decision_makes_for_itself_is_not_listed(tmp_path: Path, is_done: bool) -> None:
    log = write_dataset(tmp_path / "log", [episode(i) for i in range(4)])
    for side in ("train", "held_out"):
        write_dataset(tmp_path / f"decision/sides/{'0a' * 8}" / side, [episode(i) for i in range(2)])
    for name in ("decision/behaviour", "behaviour"):  # the second is someone's own
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.jsonl").write_bytes(line_of({"updates": 3, "loss": 1.5}))
    write_dataset(tmp_path / "sides/left", [episode(0)])
    decision = made_up("keep", uri=str(tmp_path / "decision"), dataset=log.ref, selecting=log.ref, judging=log.ref)
    if is_done:
        store_result(Location.of(str(tmp_path / "decision/result.json")), "", decision, fingerprints={})
    assert offline.report(tmp_path).problems == []
    data = data_of(tmp_path / "report.html")
    assert sorted(data["datasets"]["rows"]) == ["log", "sides/left"]
    assert [*data["runs"]["rows"]] == ["behaviour"]
    assert len(data["graph"]["nodes"]) == 2
    said = [(each["judged_on"], each["against"]) for each in data["decisions"]]
    assert said == [(4, "what the log recorded")] * is_done


def test_an_empty_root_has_a_page(tmp_path: Path) -> None:
    result = offline.report(tmp_path)
    assert result.uri == str(tmp_path / "report.html")
    assert data_of(tmp_path / "report.html")["datasets"] == {"fields": [], "rows": {}}


def test_a_root_that_does_not_exist_is_refused_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=f"There is no folder {tmp_path}/rusn"):
        offline.report(tmp_path / "rusn")
    assert not (tmp_path / "rusn").exists()


def test_broken_files_are_named_and_the_rest_is_shown(tmp_path: Path) -> None:
    for name in ("good", "cut", "lost"):
        write_dataset(tmp_path / name, [episode(i) for i in range(4)])
    manifest = tmp_path / "cut/_versions/000001.json"
    manifest.write_bytes(manifest.read_bytes()[:200])
    [data_file] = (tmp_path / "lost").glob("**/*.parquet")
    data_file.write_bytes(b"no parquet")
    for name, text in (
        ("policy/best/policy.json", "{"),
        ("policy/result.json", '{"result": {"losses": 1, "epochs": 2}}'),
        ("x/result.json", "[]"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    result = offline.report(tmp_path)
    named = " ".join(result.problems)
    for name in ("cut/_versions/000001.json", "lost", "policy/best/policy.json", "policy/result.json", "x/result.json"):
        assert name in named, name
    data = data_of(tmp_path / "report.html")
    assert data["episodes"]["good"]["total"] == 4 and data["episodes"]["lost"] is None
    assert len(data["overview"]["problems"]) == len(result.problems)
    assert not re.search(r"Error\b|Exception", named), "in words, without a class of Python"


def test_values_that_make_no_sense_cost_their_own_row_alone(root: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    shutil.copytree(root, runs)
    (runs / "going on/metrics.jsonl").write_bytes(line_of({"updates": 3, "loss": None}))
    for name, values in (
        ("policy/result.json", {"episodes": float("inf")}),
        ("policy/best/policy.json", {"episodes": float("nan")}),
    ):
        stored = json.loads((runs / name).read_text())
        stored.pop("checksum", None)
        stored.get("result", stored)["metrics"] = values
        (runs / name).write_text(json.dumps(stored))
    result = offline.report(runs)
    named = " ".join(result.problems)
    for name in ("going on/metrics.jsonl: ", "policy/result.json: ", "policy/best: "):
        assert f"{name}It is not what this package writes: " in named, name
    assert (result.datasets, result.runs, result.policies) == (1, 0, 0)


def test_no_name_and_no_value_ends_the_data_of_the_page(tmp_path: Path) -> None:
    folder = tmp_path / HOSTILE.replace("/", "⁄") / "&amp; \u2028"
    write_dataset(folder, [episode(0, eps_id=HOSTILE), episode(1, eps_id='"><img src=x onerror=alert(1)>')])
    offline.report(tmp_path)
    page = (tmp_path / "report.html").read_text("utf-8")
    assert page.count("<script") == 2 and "<img" not in page and "<!--" not in page
    [episodes] = data_of(tmp_path / "report.html")["episodes"].values()
    assert HOSTILE in episodes["id"]


def test_the_link_to_runs_has_no_password(tmp_path: Path) -> None:
    offline.report(tmp_path, runs_url="https://team:secret@prefect.example:4200/runs/")
    assert data_of(tmp_path / "report.html")["overview"]["runs_url"] == "https://prefect.example:4200/runs"


def test_numbers_that_are_none_are_left_out_of_the_json(tmp_path: Path) -> None:
    rewards = np.array([1.0, np.inf, np.nan])
    write_dataset(tmp_path / "data", [episode(0, 3, rewards=rewards), episode(1, 3)])
    offline.report(tmp_path)
    assert data_of(tmp_path / "report.html")["episodes"]["data"]["return"][0] is None


def test_a_long_list_is_a_sample_with_all_whose_steps_are_there() -> None:
    returns = np.random.default_rng(0).normal(size=1000)
    chosen = choose(returns, None, 20, seed=0)
    assert len(chosen) == 20 and int(returns.argmax()) in chosen and int(returns.argmin()) in chosen
    rows = listed(1000, chosen, 100, seed=0)
    assert len(rows) == 100 and set(chosen) <= set(rows.tolist()) and (np.diff(rows) > 0).all()
    assert choose(np.full(3, np.nan), None, 10, seed=0).keys() == {0, 1, 2}


def test_of_few_episodes_the_best_are_above_the_median_and_the_worst_below() -> None:
    chosen = choose(np.arange(7.0), None, 40, seed=0)
    assert [chosen[number] for number in range(7)] == ["worst"] * 3 + ["median"] + ["best"] * 3


def test_the_best_episode_is_no_fragment_where_steps_cost() -> None:
    lengths = np.array([3, 200, 150, 180])
    chosen = choose(-1.0 * lengths, None, 1, seed=0, is_whole=lengths > 3)
    assert chosen == {2: "best"}
    assert choose(-1.0 * lengths, None, 1, seed=0, is_whole=lengths < 0) == {0: "best"}


def test_a_group_of_parameters_with_none_is_no_parameter() -> None:
    config = {"algorithm": "bc", "optimizer": {"max_updates": 3}, "evaluation": {"environment": {}}}
    assert parameters_of(config) == {"optimizer.max_updates": 3}


def test_pictures_are_frames_and_long_episodes_are_thinned() -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (6, 16, 12, 3), np.uint8)
    signals = signals_of(episode(0, 5, observations=pictures))
    assert signals.frames is not None and (signals.frames["height"], signals.frames["width"]) == (16, 12)
    assert signals.names == [["actions", "action"], ["rewards", "reward"]]
    named = signals_of(episode(0, 5, observations=pictures), InputColumns(steps=RowSteps(), obs=["camera"], action="valve"))
    assert named.names[0] == ["actions", "valve"] and 0 in named.labels
    long = signals_of(episode(0, 3 * MAX_POINTS))
    assert long.stride == 4 and long.values.shape[1] <= MAX_POINTS
