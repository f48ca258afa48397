"""Logs with columns for the actions that were allowed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from gymnasium import spaces

from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.importing.config import ImportConfig
from offline_core.errors import ConfigError, DataError
from tests.data.importing.factories import Row, run_import, shuffled, steps, without, write_rows

MASK = {"mapping": {"action_mask": "legal"}, "episodes": {"last_new_obs": "repeat"}}
FOUR = {"space": "discrete", "n": 4}
BOX = {"space": "box", "low": -1e6, "high": 1e6, "shape": [2], "dtype": "float64"}


def rows_of(**changes: Any) -> list[Row]:
    """Two episodes without new_obs; actions 0, 1, 2, 0, …; action 3 is allowed now and then, and taken never."""
    rows = without([*steps("a", 5), *steps("b", 3, end="X")], "new_obs", "tag")
    for number, row in enumerate(rows):
        mask = [0, 0, 0, number % 2]
        mask[row["actions"]] = 1
        mask[(row["actions"] + number) % 3] = 1
        row["legal"] = mask
    return [row | changes for row in rows]


def masks_in(rows: list[Row], eps_id: str) -> np.ndarray:
    """As the episode has to have them: the last one again."""
    own = [row["legal"] for row in rows if row["eps_id"] == eps_id]
    return np.array([*own, own[-1]], np.int8)


@pytest.mark.parametrize("format", ["episodes", "table"])
def test_masks_become_part_of_the_observations(tmp_path: Path, format: str) -> None:
    rows = rows_of()
    result, found = run_import(write_rows(tmp_path / "log.parquet", shuffled(rows)), tmp_path / "out", format=format, **MASK)
    dataset = open_dataset(result.dataset.uri)
    assert dataset.observation_space["action_mask"] == spaces.MultiBinary(4)
    assert dataset.action_space == spaces.Discrete(4), "the log never has the last one"
    assert sorted(e.eps_id for e in found) == ["a", "b"]
    for each in found:
        np.testing.assert_array_equal(each.observations["action_mask"], masks_in(rows, each.eps_id))
        assert each.observations["action_mask"].dtype == np.int8
        assert each.observations["observations"].shape == (len(each) + 1, 2)
        assert "legal" not in each.extras and "action_mask" not in each.extras


def test_a_column_for_each_action_and_text_say_the_same(tmp_path: Path) -> None:
    rows = rows_of()
    expected = run_import(write_rows(tmp_path / "log.parquet", rows), tmp_path / "out", **MASK)[1]
    flags = [row | {f"may_{i}": bool(flag) for i, flag in enumerate(row["legal"])} for row in without(rows)]
    apart = MASK | {"mapping": {"action_mask": [f"may_{i}" for i in range(4)]}}
    _, found = run_import(write_rows(tmp_path / "flags.parquet", without(flags, "legal")), tmp_path / "flags", **apart)
    frame = pl.DataFrame([row | {"legal": str(row["legal"]), "obs": str(row["obs"])} for row in rows])
    frame.write_csv(tmp_path / "log.csv")
    _, texts = run_import(tmp_path / "log.csv", tmp_path / "text", **MASK)
    for others in (found, texts):
        for one, other in zip(expected, others, strict=True):
            np.testing.assert_array_equal(one.observations["action_mask"], other.observations["action_mask"])


def test_what_follows_may_have_a_mask_of_its_own(tmp_path: Path) -> None:
    rows = [row | {"after": [0, 1, 1, 0]} for row in steps("a", 1)]
    rows = [row | {"legal": [1, 0, 0, 1]} for row in rows]
    mapping = {"action_mask": "legal", "new_action_mask": "after"}
    _, (episode,) = run_import(write_rows(tmp_path / "log.parquet", rows), tmp_path / "out", mapping=mapping)
    np.testing.assert_array_equal(episode.observations["action_mask"], [[1, 0, 0, 1], [0, 1, 1, 0]])
    with pytest.raises(DataError, match="new_action_mask"):
        run_import(tmp_path / "log.parquet", tmp_path / "other", mapping={"action_mask": "legal"})


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ([0, 1, 1, 1], "forbids"),
        ([0, 0, 0, 0], "allows no action"),
        ([1, 2, 0, 0], "0 and 1"),
        ([1, 0, 0], "earlier rows have|need 4 numbers"),
    ],
)
@pytest.mark.parametrize("declared", [{}, {"observation_space": BOX, "action_space": FOUR}])
def test_a_bad_mask_makes_a_bad_row(tmp_path: Path, mask: list[int], message: str, declared: dict[str, Any]) -> None:
    rows = rows_of()
    rows[3]["legal"] = mask
    assert rows[3]["actions"] == 0
    source = write_rows(tmp_path / "log.parquet", rows)
    with pytest.raises(DataError, match=message):
        run_import(source, tmp_path / "fail", **MASK, **declared)
    result, found = run_import(source, tmp_path / "out", **MASK, **declared, unreadable="quarantine")
    assert result.counts.quarantined_rows == 1
    assert sum(map(len, found)) == len(rows) - 1


def test_a_column_of_that_name_that_is_not_mapped_stays_what_it_was(tmp_path: Path) -> None:
    rows = [{("action_mask" if name == "legal" else name): value for name, value in row.items()} for row in rows_of()]
    _, found = run_import(write_rows(tmp_path / "log.parquet", rows), tmp_path / "out", episodes={"last_new_obs": "repeat"})
    assert all(isinstance(each.observations, np.ndarray) and "action_mask" in each.extras for each in found)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"action_space": BOX}, "for Discrete and MultiDiscrete actions"),
        ({"observation_space": BOX}, "declare the action_space"),
        ({"mapping": {"new_action_mask": "after"}}, "map that, too"),
    ],
)
def test_what_cannot_have_masks_is_refused_before_anything_is_read(config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ImportConfig.model_validate({"mapping": {"action_mask": "legal"}} | config).spaces()
