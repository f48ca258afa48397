"""From files in other people's columns to a dataset: what is read, what is refused, what is listed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from offline_core.data.datasets.dataset import open_dataset
from offline_core.errors import CorruptFileError
from tests.data.formats.sources.factories import (
    OBSERVATIONS,
    SCALARS,
    SEEDS,
    check_steps,
    imported,
    imported_episodes,
    scalar_steps,
    steps,
    write_steps,
)


def test_the_seeds_columns(tmp_path: Path) -> None:
    write_steps(
        tmp_path / "in" / "x.parquet", steps(i_t=[{"n": i} for i in range(5)], logprobs_t=[-0.1, -0.2, -0.3, -0.4, -0.5])
    )
    mapping = SEEDS | {"infos": "i_t", "action_logp": "logprobs_t"}
    found = imported_episodes(tmp_path, tmp_path / "in", mapping=mapping)
    check_steps(found)
    assert found[0].infos == [{}, {"n": 0}, {"n": 1}, {"n": 2}]
    assert found[1].extras["action_logp"].tolist() == [-0.4, -0.5]


@pytest.mark.parametrize("name", ["x.csv", "x.parquet", "x.ndjson"])
def test_the_environment_declares_the_spaces(tmp_path: Path, name: str) -> None:
    values = np.random.default_rng(0).uniform(-1, 1, (2, 3)).round(3)
    columns = {"eps_id": [1, 1], "t": [0, 1], "r": [0, -1], "u": [0.5, -0.25], "done": [False, True]}
    columns |= {axis: values[:, i].tolist() for i, axis in enumerate("xyz")}
    write_steps(tmp_path / "in" / name, columns)
    result = imported(
        tmp_path,
        tmp_path / "in",
        mapping={"obs": ["x", "y", "z"], "actions": "u", "rewards": "r"},
        environment={"id": "Pendulum-v1"},
        episodes={"last_new_obs": "repeat"},
        recorded_action_range=(-1, 1),
    )
    dataset = open_dataset(result.dataset.uri)
    [episode] = dataset.episodes()
    np.testing.assert_array_equal(episode.observations, values[[0, 1, 1]].astype(np.float32), strict=True)
    np.testing.assert_array_equal(episode.actions, np.float32([[1.0], [-0.5]]), strict=True)
    assert episode.action_space == dataset.action_space == spaces.Box(-2, 2, (1,), np.float32)


QUARANTINE = {"unreadable": "quarantine"}


def listed(path: str | None) -> list[dict[str, Any]]:
    assert path is not None
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


@pytest.mark.parametrize("name", ["x.parquet", "x.csv", "x.ndjson", "x.arrow"])
def test_bad_rows_are_listed_and_the_rest_goes_on(tmp_path: Path, name: str) -> None:
    """Episode 'b' loses its first step, in the second row group."""
    write_steps(tmp_path / "in" / name, scalar_steps(r_t=[0.5, 1.0, 1.5, None, 2.5]))
    result = imported(tmp_path, tmp_path / "in", mapping=SCALARS, **QUARANTINE)
    assert (result.counts.rows, result.counts.steps, result.counts.quarantined_rows) == (5, 4, 1)
    assert result.counts.late_starts == 1
    [line] = listed(result.quarantine)
    assert (line["uri"], line["row"], line["rows"], line["error"]) == (f"{tmp_path}/in/{name}", 3, 1, "SchemaError")
    assert "Column 'r_t' has 1 null among 5 rows" in line["reason"]


def test_numbers_of_bad_rows_of_later_row_groups_under_a_filter(tmp_path: Path) -> None:
    write_steps(tmp_path / "in" / "x.parquet", steps(r_t=[0.5, None, 1.5, 2.0, None]), row_group_size=2)
    result = imported(tmp_path, tmp_path / "in", source={"where": "eps_id = 'b'"}, **QUARANTINE)
    assert [line["row"] for line in listed(result.quarantine)] == [4]
    assert (result.counts.rows, result.counts.steps) == (2, 1)


def test_bad_files_are_listed_and_the_rest_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write_steps(folder / "a.parquet", steps())
    write_steps(folder / "b.parquet", {"something": ["else"] * 3})
    write_steps(folder / "c.parquet", steps())
    (folder / "c.parquet").write_bytes((folder / "c.parquet").read_bytes()[:-100])
    write_steps(folder / "d.parquet", steps(eps_id=["c", "c", "c", "d", "d"], r_t=[1, 2, 3, 4, 5]))
    result = imported(tmp_path, folder, **QUARANTINE)
    found = [(line["uri"][-9:], line["row"], line["rows"], line["error"]) for line in listed(result.quarantine)]
    assert found == [("b.parquet", None, 3, "SchemaError"), ("c.parquet", None, 0, "CorruptFileError")]
    assert (result.counts.episodes, result.counts.steps) == (4, 10)
    assert (result.counts.rows, result.counts.quarantined_rows, result.counts.quarantined_files) == (13, 3, 1)
    (folder / "b.parquet").unlink()
    with pytest.raises(CorruptFileError, match=r"c\.parquet cannot be read as parquet"):
        imported(tmp_path, folder)


def test_whole_numbers_after_real_ones_and_the_other_way_round(tmp_path: Path) -> None:
    whole, real = OBSERVATIONS[[0, 1, 2, 4, 5]].astype(int).tolist(), (OBSERVATIONS[[0, 1, 2, 4, 5]] + 0.5).tolist()
    following = OBSERVATIONS[[1, 2, 3, 5, 6]]
    write_steps(tmp_path / "in" / "1.parquet", steps(o_t=real, o_tp1=(following + 0.5).tolist()))
    ids = ["c", "c", "c", "d", "d"]
    write_steps(tmp_path / "in" / "2.parquet", steps(o_t=whole, o_tp1=following.astype(int).tolist(), eps_id=ids))
    assert [e.observations.dtype for e in imported_episodes(tmp_path, tmp_path / "in")] == [np.float64] * 4
    (tmp_path / "in" / "1.parquet").rename(tmp_path / "in" / "3.parquet")
    result = imported(tmp_path, tmp_path / "in")
    assert result.notes[0].endswith("dtype: float64}: whole numbers in some files, real ones in others.")
