"""What rewards are learned as: scaled and shifted, or by the range of the dataset's returns; the data stays as it is."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import offline_core as offline
from offline_core.data.episodes import Episode
from offline_core.errors import ConfigError
from offline_core.learning import data_loader
from offline_core.learning.config import TrainingConfig
from offline_core.learning.data_loader import held_out_loader_of, loader_of
from offline_core.learning.run import Run
from offline_core.learning.source import resident_bytes
from offline_core.learning.train import train
from offline_core.learning.work import make_run
from offline_core.runtime.config import parse
from tests.learning.datasets import SPACES, dataset_of

REWARDS = [[1.0, 2.0], [-3.0, 0.5, 0.5], [10.0]]
"""Of three episodes, whose returns are 3, -2 and 10."""


def recorded(folder: Path, rewards: Sequence[Sequence[float]] = REWARDS) -> str:
    return dataset_of(folder, episodes_of(rewards), environment=None)


def episodes_of(rewards: Sequence[Sequence[float]]) -> list[Episode]:
    return [
        Episode(
            eps_id=str(number),
            observations=np.zeros((len(own) + 1, 4), np.float32),
            actions=np.zeros(len(own), np.int64),
            rewards=np.array(own),
            terminated=True,
            observation_space=SPACES[0],
            action_space=SPACES[1],
        )
        for number, own in enumerate(rewards)
    ]


def run_of(dataset: str, rewards: dict[str, Any], *, algorithm: str = "iql", **values: Any) -> Run:
    data = {"prelearners": 0, "rewards": rewards} | values.pop("data", {})
    config = parse(TrainingConfig, {"algorithm": algorithm, "data": data} | values)
    return make_run(config, dataset, "/nowhere", None)


def learned(run: Run, *, held_out: bool = False) -> list[float]:
    loader = held_out_loader_of(run) if held_out else loader_of(run)
    assert loader is not None
    windows = [steps.columns["rewards"][steps.rows] for steps in loader.windows(0, 0)]
    return sorted(torch.cat(windows).tolist())


@pytest.mark.parametrize("resident_bytes", ["2 GiB", 0, "rows"])
def test_rewards_are_scaled_then_shifted_however_they_are_read(tmp_path: Path, resident_bytes: Any) -> None:
    run = run_of(recorded(tmp_path), {"scale": 2.0, "shift": -1.0}, data={"resident_bytes": resident_bytes})
    assert run.streamed == (resident_bytes != "2 GiB")
    assert learned(run) == [-7.0, 0.0, 0.0, 1.0, 3.0, 19.0]


def test_by_the_range_of_returns_that_of_the_dataset_becomes_1000(tmp_path: Path) -> None:
    """Of the held-out dataset, too, whose own range is another one; and the policy's lineage has the number."""
    other = recorded(tmp_path / "other", [[1.0], [2.0]])
    run = run_of(recorded(tmp_path / "data"), {"scale": "return_range"}, evaluation={"held_out": other})
    scale = 1000 / 12
    assert learned(run) == pytest.approx([-3 * scale, 0.5 * scale, 0.5 * scale, scale, 2 * scale, 10 * scale])
    assert learned(run, held_out=True) == pytest.approx([scale, 2 * scale])
    assert run.operation.config["data"] == {"rewards": {"scale": scale}}


def test_a_range_of_zero_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    dataset = recorded(tmp_path / "data", [[1.0, 2.0], [3.0]])
    config = parse(TrainingConfig, {"algorithm": "iql", "data": {"rewards": {"scale": "return_range"}}})
    with pytest.raises(ConfigError, match=r"returns of .*data differ by 0, so data\.rewards\.scale cannot be return_range"):
        train(config, dataset=dataset, output=str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_the_data_stays_as_it_is_and_so_do_identities_without_it(tmp_path: Path) -> None:
    dataset = recorded(tmp_path)
    learned(run_of(dataset, {"scale": 2.0}))
    assert sorted(float(r) for episode in offline.open_dataset(dataset).episodes() for r in episode.rewards) == sorted(
        itertools.chain(*REWARDS)
    )
    plain, scaled = run_of(dataset, {}), run_of(dataset, {"scale": 2.0})
    assert "data" not in plain.operation.config and plain.identity != scaled.identity


def test_what_learns_no_values_does_not_mind(tmp_path: Path) -> None:
    run = run_of(recorded(tmp_path), {"scale": 2.0}, algorithm="bc")
    assert [len(steps) for steps in loader_of(run).windows(0, 0)] == [6]


def test_of_much_held_out_data_row_groups_from_all_over_it_are_held_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    held_out = dataset_of(tmp_path / "other", episodes_of([[float(number)] for number in range(8)]), environment=None, rows=2)
    run = run_of(recorded(tmp_path / "data"), {}, evaluation={"held_out": held_out}, data={"resident_bytes": 0})
    assert learned(run, held_out=True) == [0, 1, 2, 3, 4, 5, 6, 7], "whatever may stay in memory of what is learned from"
    needed = resident_bytes(run.held_out, run.held_out.origin.ref.steps)
    evaluation = {"held_out": held_out, "held_out_bytes": needed // 2 + 1}
    run = run_of(recorded(tmp_path / "data"), {}, evaluation=evaluation, data={"resident_bytes": 0})
    with caplog.at_level("INFO", logger=data_loader.__name__):
        assert learned(run, held_out=True) == [2, 3, 6, 7]
    assert "The loss of held-out data is that of 2 of its 4 row groups" in caplog.text
