"""The suite of references without its hours: its page, which sides it runs, and what the single files learn."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import h5py
import numpy as np
import pytest
import torch

import offline_core as offline
from benchmarks.reference import single_file_side
from benchmarks.reference.__main__ import _is_there, run
from benchmarks.reference.page import collected, latest_page, page_of, restore, table
from benchmarks.reference.suite import SETTINGS, SIDES, Cell
from offline_core.learning.train import train
from tests.data.datasets.factories import episode, write_dataset

ROOT = Path(__file__).parents[2]
RESULT = {"returns": [250.0], "seconds": 1.0, "cpu_seconds": 0.5, "updates": 50, "version": 9}
FACTS = {"episodes": 1, "steps": 5, "mean_return": 5.0}


def row_of(page: str, algorithm: str, data: str = "aa") -> list[str]:
    (line,) = [line for line in page.splitlines() if line.startswith(f"| cartpole expert | {data} | {algorithm} |")]
    return [column.strip() for column in line.strip("|").split("|")]


def cell_of(algorithm: str, seed: int = 0, data: str = "aa") -> Cell:
    return Cell("cartpole", "expert", data, algorithm, 50, seed)


def store(folder: Path, side: str, *returns: float, algorithm: str = "bc", data: str = "aa") -> None:
    (folder / "cells").mkdir(exist_ok=True)
    for seed, mean_return in enumerate(returns):
        file = cell_of(algorithm, seed, data).file(folder, side)
        file.write_text(json.dumps(RESULT | {"returns": [mean_return], "data": FACTS, "processor": "P7"}))


def test_a_page_compares_with_each_peer(tmp_path: Path) -> None:
    store(tmp_path, "ours", 261.0, 261.0)
    store(tmp_path, "d3rlpy", 22.0, 500.0)
    store(tmp_path, "jax", 200.0, 250.0)
    store(tmp_path, "single-file", 300.0, 400.0)
    page = page_of(collected(tmp_path))
    ours, chosen, d3rlpy, _, _, above_d3rlpy, above_jax, above_single_file, speeds = row_of(page, "bc")[7:]
    assert (ours, chosen, d3rlpy) == ("50.0 ± 0.0 [50.0, 50.0]", "missing", "50.0 ± 50.0 [0.0, 100.0]")
    assert (above_d3rlpy, above_jax, above_single_file, speeds) == ("yes", "yes", "no", "100 / missing / 100 / 100 / 100")
    assert "In or above d3rlpy's interval: 1 of 1 cells." in page


def test_a_page_marks_what_is_missing(tmp_path: Path) -> None:
    store(tmp_path, "ours", 500.0)
    store(tmp_path, "ours", 500.0, algorithm="dcql")
    page = page_of(collected(tmp_path))
    assert row_of(page, "bc")[4:] == [
        "P7",
        "version 9",
        "1 / 0 / 0 / 0 / 0",
        "100.0 ± 0.0",
        *["missing"] * 7,
        "100 / missing / missing / missing / missing",
    ]
    assert row_of(page, "dcql")[4:] == [
        "P7",
        "version 9",
        "1 / 0 / 0",
        "100.0 ± 0.0",
        *["-", "missing", "missing", "-", "missing", "missing", "-"],
        "100 / - / missing / missing / -",
    ]
    assert "cartpole medium (all)" in page


def test_a_page_compares_nothing_across_recordings(tmp_path: Path) -> None:
    store(tmp_path, "ours", 500.0)
    store(tmp_path, "jax", 22.0, data="bb")
    page = page_of(collected(tmp_path))
    assert row_of(page, "bc")[4:10] == ["P7", "version 9", "1 / 0 / 0 / 0 / 0", "100.0 ± 0.0", "missing", "missing"]
    assert row_of(page, "bc", data="bb")[4:11] == ["P7", "", "0 / 0 / 0 / 1 / 0", *["missing"] * 3, "0.0 ± 0.0"]


def test_an_earlier_page_is_gone_on_with(tmp_path: Path) -> None:
    earlier, now = tmp_path / "earlier", tmp_path / "now"
    earlier.mkdir()
    store(earlier, "ours", 261.0, 500.0)
    store(earlier, "jax", 22.0, algorithm="td3_bc", data="bb")
    measured = json.loads(json.dumps(collected(earlier)))
    restore(measured, now)
    store(now, "ours", 261.0, 500.0, 22.0)
    restore(measured, now)
    assert [run["returns"] for run in collected(now)["cells"][0]["runs"]["ours"]] == [[261.0], [500.0], [22.0]]
    assert collected(now)["cells"][1] == measured["cells"][1]
    assert collected(now)["data"] == measured["data"]


def test_the_table_of_the_readme_has_whole_cells_only(tmp_path: Path) -> None:
    for side in ("ours", "d3rlpy", "jax"):
        store(tmp_path, side, 261.0, 500.0, 380.5)
    store(tmp_path, "ours", 500.0, algorithm="dcql")
    shown = table(json.loads(json.dumps(collected(tmp_path)))).splitlines()
    assert shown[2] == "| cartpole expert, bc | 75.0 | 75.0 | 75.0 | 1.00 | 1.00 | P7 | version 9 |"
    assert "after 50 updates of the last policy, means of 3 seeds. In or above d3rlpy's interval in 1 of 1 cells" in shown[4]
    assert len(shown) == 5


def test_speeds_of_machines_that_differ_are_not_compared(tmp_path: Path) -> None:
    for side in ("ours", "d3rlpy", "jax"):
        store(tmp_path, side, 261.0, 500.0, 380.0)
    for seed in range(3):
        for side, seconds in (("ours", 0.7), ("jax", 0.9)):
            file = cell_of("bc", seed).file(tmp_path, side)
            file.write_text(json.dumps(json.loads(file.read_text()) | {"loop_seconds": seconds}))
    assert "| - | 1.00 | P7 |" in table(json.loads(json.dumps(collected(tmp_path))))


def test_the_readme_has_the_table_of_the_last_page() -> None:
    shown = re.search(r"<!-- reference -->\n(.*?)\n<!-- /reference -->", (ROOT / "README.md").read_text(), re.DOTALL)
    measured = latest_page()
    assert shown is not None
    assert measured is not None
    assert shown[1] == table(measured)


def test_only_missing_sides_that_have_the_algorithm_are_run(tmp_path: Path) -> None:
    peer = tmp_path / "peer"
    peer.write_text(f"#!/bin/sh\necho reading $2\necho '{json.dumps(RESULT)}'\n")
    peer.chmod(0o755)
    write_dataset(tmp_path / "data", [episode(0)])
    data = offline.open_dataset(tmp_path / "data")

    def call() -> None:
        pythons = {"d3rlpy": str(peer), "jax": None}
        run(cell_of("dcql"), tmp_path, data, tmp_path / "minari", ["d3rlpy", "single-file"], pythons)

    call()
    assert [file.name for file in (tmp_path / "cells").iterdir()] == ["cartpole.expert.aa.dcql.50.0.d3rlpy.json"]
    assert row_of(page_of(collected(tmp_path)), "dcql")[9] == "47.7 ± 0.0"
    peer.unlink()
    call()


def test_ours_is_run_again_by_another_version_of_the_training(tmp_path: Path) -> None:
    store(tmp_path, "ours", 500.0)
    store(tmp_path, "jax", 500.0)
    ours, jax = (cell_of("bc").file(tmp_path, side) for side in ("ours", "jax"))
    assert [_is_there(ours, "ours"), _is_there(jax, "jax"), _is_there(jax.with_suffix(".no"), "jax")] == [False, True, False]
    ours.write_text(json.dumps(RESULT | {"version": train.version}))
    assert _is_there(ours, "ours")


def test_single_files_have_the_algorithms_that_the_suite_says() -> None:
    assert set(single_file_side.ALGORITHMS) == set(SIDES["single-file"])


def test_a_single_file_reads_transitions(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "data.hdf5", "w") as file:
        for number, last in enumerate([True, False]):
            group = file.create_group(f"episode_{number}")
            group["observations"] = np.arange(3.0)[:, None] + 10 * number
            group["actions"] = np.full((2, 1), number + 0.5)
            group["rewards"] = [1.0, number]
            group["terminations"] = [False, last]
    steps, observed = single_file_side.read(str(tmp_path / "data.hdf5"), {"normalize": True, "scale_rewards": True})
    assert steps["goes_on"].tolist() == [1, 0, 1, 1]
    assert steps["has_new_action"].tolist() == [1, 0, 1, 0]
    assert steps["rewards"].tolist() == [1000, 0, 1000, 1000]
    assert steps["recorded_new_actions"][steps["has_new_action"] == 1].tolist() == [[0.5], [1.5]]
    torch.testing.assert_close(steps["new_observations"], observed(np.array([[1.0], [2], [11], [12]])))
    torch.testing.assert_close(
        observed(np.array([[5.5], [5.5 + np.std([0, 1, 10, 11])]])), torch.tensor([[0.0], [1]]), atol=1e-3, rtol=0
    )


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["td3_bc", "iql", "rebrac", "cql"])
def test_a_single_file_learns_better_actions_than_the_average_one(algorithm: str) -> None:
    torch.manual_seed(0)
    actions = 2 * torch.rand(2_000, 1) - 1
    steps = {
        "observations": torch.randn(2_000, 2),
        "new_observations": torch.randn(2_000, 2),
        "actions": actions,
        "rewards": 10 * actions[:, 0],
        "goes_on": torch.zeros(2_000),
        "has_new_action": torch.zeros(2_000),
        "recorded_new_actions": actions,
    }
    settings = SETTINGS[algorithm] | {"hidden": [32], "batch": 64, "rates": {"policy": 3e-3, "critics": 3e-3}, "alpha": 2.5}
    order = {"algorithm": algorithm, "settings": settings, "updates": 500, "discrete": False}
    policy = single_file_side.learn(order, steps)
    assert policy(torch.randn(100, 2)).mean() > 0.3


@pytest.mark.slow
def test_a_single_file_clones_a_rule_and_plays_without_offline_core(tmp_path: Path) -> None:
    env = gym.make("CartPole-v1")
    with h5py.File(tmp_path / "data.hdf5", "w") as file:
        for number in range(4):
            observations, actions = [env.reset(seed=number)[0]], []
            for _ in range(200):
                actions.append(int(observations[-1][2] + observations[-1][3] > 0))
                observations.append(env.step(actions[-1])[0])
            columns = {"observations": observations, "actions": actions, "rewards": np.ones(200), "terminations": np.zeros(200)}
            for name, column in columns.items():
                file[f"episode_{number}/{name}"] = np.asarray(column)
    order: dict[str, Any] = Cell("cartpole", "expert", "aa", "bc", 300, 0).order("", "")
    order |= {"minari": str(tmp_path / "data.hdf5"), "episodes": 2}
    (tmp_path / "order.json").write_text(json.dumps(order))
    alone = "side.main(); assert 'offline_core' not in sys.modules"
    code = f"import sys; from benchmarks.reference import single_file_side as side; {alone}"
    command = [sys.executable, "-c", code, str(tmp_path / "order.json")]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert found["updates"] == 300
    assert min(found["returns"]) >= 200
