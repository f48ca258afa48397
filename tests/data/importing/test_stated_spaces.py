"""Spaces that a source states with its steps are those of the import, unless others are declared."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pyarrow.parquet as pq
import pytest
from gymnasium import spaces

import offline_core as offline
from offline_core.data.episodes import Episode, episodes_to_table, nested
from offline_core.data.formats.exporting import ExportConfig, export
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.importing import import_data
from offline_core.data.quality.check import check
from offline_core.data.quality.config import QualityConfig
from offline_core.errors import OfflineError
from offline_core.runtime.config import parse
from tests.data.datasets.factories import episode, write_dataset

VECTOR = spaces.Box(np.array([-1, -0.5], np.float32), np.array([1, 2], np.float32))
CASES: dict[str, gym.Space[Any]] = {
    "discrete": spaces.Discrete(7),
    "discrete-start": spaces.Discrete(4, start=-5),
    "discrete-int32": spaces.Discrete(5, dtype=np.int32),
    "multi-discrete": spaces.MultiDiscrete([5, 9], start=[1, -2]),
    "multi-binary": spaces.MultiBinary(3),
    "multi-binary-axes": spaces.MultiBinary((2, 2)),
    "box": VECTOR,
    "box-scalar": spaces.Box(-1, 1, ()),
    "box-float64": spaces.Box(-np.inf, 4, (2,), np.float64),
    "box-float16": spaces.Box(-2, 2, (3,), np.float16),
    "box-int": spaces.Box(-3, 12, (2,), np.int16),
    "image": spaces.Box(0, 255, (6, 6, 1), np.uint8),
    "text": spaces.Text(6, min_length=2, charset="abc"),
    "dict": spaces.Dict([("z", VECTOR), ("a", spaces.Dict({"b": spaces.Discrete(9, start=2)}))]),
    "tuple": spaces.Tuple([spaces.Discrete(5), VECTOR]),
}


def sampled(observations: gym.Space[Any], actions: gym.Space[Any], count: int = 2, steps: int = 2) -> list[Episode]:
    """Few steps: what is stated cannot be inferred from them."""
    observations.seed(0)
    actions.seed(0)

    def values(space: gym.Space[Any], number: int) -> Any:
        return nested.stack([space.sample() for _ in range(number)], "values")

    return [
        episode(
            number,
            steps,
            observations=values(observations, steps + 1),
            actions=values(actions, steps),
            observation_space=observations,
            action_space=actions,
            extras={},
        )
        for number in range(count)
    ]


def stored(format: str, episodes: Sequence[Episode], folder: Path) -> str:
    """The episodes in a format of others, written by its export."""
    if format == "parquet":
        pq.write_table(episodes_to_table(episodes), folder / "steps.parquet")
        return str(folder / "steps.parquet")
    write_dataset(folder / "in", episodes)
    export(ExportConfig(format=format), dataset=str(folder / "in"), output=str(folder / "out"))
    return str(folder / "out/offline/dataset-v0" if format == "minari" else folder / "out")


def imported(source: str | list[str], folder: Path, **values: Any) -> offline.Dataset:
    import_data(parse(ImportConfig, values), source=source, output=str(folder / "again"))
    return offline.open_dataset(folder / "again")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("format", ["minari", "lerobot", "parquet"])
def test_what_was_stated_is_the_space(tmp_path: Path, format: str, name: str) -> None:
    some = sampled(CASES[name], VECTOR if name == "text" else CASES[name])
    dataset = imported(stored(format, some, tmp_path), tmp_path)
    found, expected = (dataset.observation_space, dataset.action_space), (some[0].observation_space, some[0].action_space)
    assert (repr(found), found) == (repr(expected), expected)
    assert sorted(dataset.episodes(), key=lambda each: each.eps_id) == some


@pytest.mark.parametrize("format", ["minari", "lerobot", "parquet"])
def test_values_outside_are_imported_and_fail_the_check(tmp_path: Path, format: str) -> None:
    """As where the space is declared."""
    some = sampled(VECTOR, spaces.Discrete(3), count=6, steps=4)
    some[0].actions[0] = 5
    dataset = imported(stored(format, some, tmp_path), tmp_path)
    assert (dataset.action_space, max(int(each.actions.max()) for each in dataset.episodes())) == (spaces.Discrete(3), 5)
    report = check(QualityConfig(), dataset=str(tmp_path / "again"))
    assert "actions_outside_space" in [each.rule for each in report.findings if each.verdict == "fail"]


def test_what_is_declared_wins(tmp_path: Path) -> None:
    source = stored("minari", sampled(VECTOR, spaces.Discrete(3)), tmp_path)
    dataset = imported(source, tmp_path, action_space={"space": "discrete", "n": 9})
    assert (dataset.observation_space, dataset.action_space) == (VECTOR, spaces.Discrete(9))


def test_a_space_is_not_that_of_another_column(tmp_path: Path) -> None:
    """`actions` mapped to another column have nothing to do with what is stated of `actions`."""
    table = episodes_to_table(sampled(VECTOR, spaces.Discrete(7)))
    pq.write_table(table.append_column("torque", table["rewards"]), tmp_path / "steps.parquet")
    dataset = imported(str(tmp_path / "steps.parquet"), tmp_path, mapping={"actions": "torque", "before": "actions"})
    assert (dataset.observation_space, dataset.action_space) == (VECTOR, spaces.Box(-np.inf, np.inf, (), np.float64))


def test_files_that_state_different_spaces_are_refused(tmp_path: Path) -> None:
    """Unless one is declared, which has to be done with care: an action of one may be another in the other."""
    files = []
    for number, size in enumerate((3, 4)):
        some = [dataclasses.replace(each, eps_id=f"{number}-{each.eps_id}") for each in sampled(VECTOR, spaces.Discrete(size))]
        files.append(str(tmp_path / f"{number}.parquet"))
        pq.write_table(episodes_to_table(some), files[-1])
    with pytest.raises(
        OfflineError, match=r"1\.parquet.* states the action_space Discrete\(4\) where earlier .* Discrete\(3\)"
    ):
        imported(files, tmp_path)
    assert imported(files, tmp_path, action_space={"space": "discrete", "n": 4}).statistics.episodes == 4
