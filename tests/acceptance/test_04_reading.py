"""Point 4: reading anything."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset
import pytest
from pyarrow import fs

from offline_core.data.datasets.dataset import open_dataset
from tests.acceptance.forms import run_import
from tests.data.formats.sources.factories import OBSERVATIONS, steps, write_steps

MAPPING = {"obs": "o_t", "actions": "a_t", "rewards": "r_t", "new_obs": "o_tp1", "infos": "i_t", "dones": "d_t"}
"""As it is written in the document."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with a file of three steps of an episode `a` and two of `b`, in columns of their own."""
    write_steps(tmp_path / "in" / "x.parquet", steps(i_t=[{"n": i} for i in range(5)], logp=[0.1, 0.2, 0.3, 0.4, 0.5]))
    return tmp_path / "in"


def test_04_the_column_mapping_of_the_document(source: Path, tmp_path: Path) -> None:
    _, found = run_import(source, tmp_path / "out", mapping=MAPPING)
    np.testing.assert_array_equal(found["a"].observations, OBSERVATIONS[:4])
    np.testing.assert_array_equal(found["b"].observations, OBSERVATIONS[4:])
    assert found["a"].actions.tolist() == [0, 1, 0] and found["a"].rewards.tolist() == [0.5, 1.0, 1.5]
    assert [info.get("n") for info in found["b"].get_infos()] == [None, 3, 4]


def test_04_done_becomes_terminated_and_truncated_is_false(source: Path, tmp_path: Path) -> None:
    for name in ("done", "dones"):
        mapping = {canonical: own for canonical, own in MAPPING.items() if canonical != "dones"} | {name: "d_t"}
        _, found = run_import(source, tmp_path / name, mapping=mapping)
        assert [(e.terminated, e.truncated) for e in found.values()] == [(True, False)] * 2


def test_04_unmapped_columns_become_extras(source: Path, tmp_path: Path) -> None:
    _, found = run_import(source, tmp_path / "out", mapping=MAPPING)
    assert found["b"].extras["logp"].tolist() == [0.4, 0.5]


def test_04_the_next_observation_may_be_missing(tmp_path: Path) -> None:
    write_steps(tmp_path / "in" / "x.parquet", steps(o_tp1=None))
    mapping = {canonical: own for canonical, own in MAPPING.items() if canonical not in ("new_obs", "infos")}
    repeated = run_import(tmp_path / "in", tmp_path / "1", mapping=mapping, episodes={"last_new_obs": "repeat"})[1]["a"]
    np.testing.assert_array_equal(repeated.observations, OBSERVATIONS[[0, 1, 2, 2]])
    cut_off = {"truncateds" if canonical == "dones" else canonical: own for canonical, own in mapping.items()}
    result, dropped = run_import(tmp_path / "in", tmp_path / "2", mapping=cut_off, episodes={"last_new_obs": "drop"})
    np.testing.assert_array_equal(dropped["a"].observations, OBSERVATIONS[:3])
    assert result.counts.dropped_last_steps == 2
    result, kept = run_import(tmp_path / "in", tmp_path / "3", mapping=mapping, episodes={"last_new_obs": "drop"})
    assert kept["a"].terminated and len(kept["a"]) == 3 and result.counts.dropped_last_steps == 0


@pytest.mark.usefixtures("ray_up")
@pytest.mark.parametrize(
    ("method", "name", "arguments", "extras"),
    [
        pytest.param(
            "read_parquet", "x.parquet", {"include_paths": True}, {"path"}, marks=pytest.mark.slow
        ),  # test_ray_reads.py
        pytest.param("read_json", "x.jsonl", {"lines": True}, set(), marks=pytest.mark.slow),
    ],
)
def test_04_any_read_of_ray_data_with_its_arguments(
    tmp_path: Path, method: str, name: str, arguments: dict[str, Any], extras: set[str]
) -> None:
    write_steps(tmp_path / "in" / name, steps())
    mapping = {canonical: own for canonical, own in MAPPING.items() if canonical != "infos"}
    source = {"format": method, "arguments": arguments}
    _, found = run_import(tmp_path / "in", tmp_path / "out", mapping=mapping, source=source)
    np.testing.assert_array_equal(found["a"].observations, OBSERVATIONS[:4])
    assert found["a"].extras.keys() == extras


@pytest.mark.usefixtures("ray_up")
@pytest.mark.slow
def test_04_a_filter_expression_and_a_filesystem_object_of_pyarrow(source: Path, tmp_path: Path) -> None:
    """As the document gives them to `read_parquet`; what is the same is found, another expression is another import."""
    arguments = {
        "filter": pyarrow.dataset.field("t") < 2,
        "filesystem": fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()),
    }
    for given, reused, lengths in [
        (arguments, False, [2, 2]),
        (arguments | {"filter": pyarrow.dataset.field("t") < 2}, True, [2, 2]),
        (arguments | {"filter": pyarrow.dataset.field("t") < 1}, False, [1, 1]),
    ]:
        mapping = {canonical: own for canonical, own in MAPPING.items() if canonical != "infos"}
        asked = {"format": "read_parquet", "arguments": given}
        result, found = run_import("in/x.parquet", tmp_path / "out", mapping=mapping, source=asked)
        assert (result.reused, [len(episode) for episode in found.values()]) == (reused, lengths)
    kept = open_dataset(result.dataset.uri).manifest.operation.config["source"]["arguments"]
    assert kept["filter"].startswith("python:(t < 1)#")


@pytest.mark.slow
@pytest.mark.usefixtures("ray_up")
def test_04_a_query_by_read_sql(tmp_path: Path) -> None:
    """It takes no paths: what is asked for is the source, and what makes the connection is a function."""
    database = str(tmp_path / "steps.db")
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("CREATE TABLE steps (run, t, x, a, r, d)")
        rows = [(run, t, 10 * i + t, t % 2, 1.0, t == 2) for i, run in enumerate("ab") for t in range(3)]
        connection.executemany("INSERT INTO steps VALUES (?, ?, ?, ?, ?, ?)", rows)
    asked = {"format": "read_sql", "arguments": {"connection_factory": lambda: sqlite3.connect(database)}}
    mapping = {"eps_id": "run", "obs": "x", "actions": "a", "rewards": "r", "dones": "d"}
    query = "SELECT * FROM steps WHERE run = 'b'"
    _, found = run_import(query, tmp_path / "out", mapping=mapping, source=asked, episodes={"last_new_obs": "repeat"})
    assert found["b"].observations.ravel().tolist() == [10, 11, 12, 12] and found.keys() == {"b"}


@pytest.fixture
def places(tmp_path: Path) -> Path:
    """`in/a.csv`, `in/deep/b.csv` and `c.csv`, with an episode of one step each."""
    for name in ("in/a.csv", "in/deep/b.csv", "c.csv"):
        letter = Path(name).stem
        row = {"eps_id": [letter], "obs": [1.0], "actions": [0], "rewards": [1.0], "new_obs": [2.0], "dones": [True]}
        write_steps(tmp_path / name, row)
    return tmp_path


@pytest.mark.parametrize(
    ("form", "paths", "found"),
    [
        ("a file", "in/a.csv", "a"),
        ("a folder with all below", "in", "ab"),
        ("a glob", "in/*.csv", "a"),
        ("a glob through folders", "**/*.csv", "abc"),
        ("a list", ["in/a.csv", "c.csv"], "ac"),
        ("a mix", ["in/deep", "in/*.csv", "c.csv"], "abc"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-",
)
def test_04_file_folder_glob_list_and_mix(places: Path, form: str, paths: str | list[str], found: str) -> None:
    source: Any = [f"{places}/{path}" for path in paths] if isinstance(paths, list) else f"{places}/{paths}"
    assert "".join(sorted(run_import(source, places / "out")[1])) == found, form


def test_04_what_is_read_says_its_spaces(source: Path, tmp_path: Path) -> None:
    result, _ = run_import(source, tmp_path / "out", mapping=MAPPING)
    dataset = open_dataset(result.dataset.uri)
    assert dataset.observation_space is not None and dataset.observation_space.shape == (2,)
    assert dataset.action_space is not None and int(dataset.action_space.n) == 2  # type: ignore[attr-defined]
