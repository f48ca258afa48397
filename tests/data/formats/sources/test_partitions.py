"""Columns from the names of folders, and the column that names the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.episodes import columns
from offline_core.data.formats.sources.opening import SourceConfig, open_source
from offline_core.data.formats.sources.partitions import typed
from offline_core.errors import ConfigError
from tests.data.formats.sources.factories import tables_of, write_steps
from tests.data.importing.factories import run_import

DAYS = ("2026-01-01", "2026-01-02")
STEPS = pa.table({"obs": [0.5, 1.5], "actions": [0, 1], "rewards": [1.0, 1.0], "terminateds": [False, True]})


def hive(root: Path, name: str = "x.csv") -> Path:
    """`in/date=…/hour=…/<name>`, two steps each."""
    for hour, day in enumerate(DAYS, 8):
        path = root / "in" / f"date={day}" / f"hour={hour:02d}" / name
        path.parent.mkdir(parents=True)
        if name.endswith(".npz"):
            np.savez(path, **{column: STEPS[column].to_numpy() for column in STEPS.column_names})
        else:
            write_steps(path, STEPS)
    return root / "in"


def read(*paths: Path | str, **config: object) -> pa.Table:
    readers = open_source([str(path) for path in paths], SourceConfig.model_validate(config))
    return pa.concat_tables([batch for reader in readers for batch in tables_of(reader)], promote_options="permissive")


@pytest.mark.parametrize("name", ["x.csv", "x.parquet", "x.ndjson", "x.arrow", "x.npz"])
def test_folders_named_like_key_and_value_are_columns_of_every_format(tmp_path: Path, name: str) -> None:
    table = read(hive(tmp_path, name))
    assert table["date"].to_pylist() == [DAYS[0]] * 2 + [DAYS[1]] * 2
    assert table["hour"].to_pylist() == [8, 8, 9, 9], "whole numbers in all of them are numbers"


def test_they_can_be_chosen_and_asked_for(tmp_path: Path) -> None:
    chosen = read(hive(tmp_path), columns=["obs", "hour"], where="date = '2026-01-02'")
    assert chosen.select(["obs", "hour"]).to_pydict() == {"obs": [0.5, 1.5], "hour": [9, 9]}
    assert "date" not in chosen.column_names


@pytest.mark.parametrize(
    "source", ["in/date=*/*/*.csv", "in/**/*.csv", "in/date=2026-01-01", "in/date=2026-01-01/hour=08/x.csv"]
)
def test_patterns_folders_and_files_below_a_partition_have_them_too(tmp_path: Path, source: str) -> None:
    hive(tmp_path)
    assert read(tmp_path / source)["date"].to_pylist()[:2] == [DAYS[0]] * 2


def test_folders_above_the_source_are_none(tmp_path: Path) -> None:
    folder = tmp_path / "lr=1/data"
    folder.mkdir(parents=True)
    write_steps(folder / "x.csv", STEPS)
    assert "lr" not in {*read(folder).column_names, *read(folder / "x.csv").column_names, *read(folder / "*.csv").column_names}


def test_types_are_the_same_in_all_files() -> None:
    assert typed([{"a": "1", "b": "x"}, {"a": "02", "b": "3"}, {"a": None}]) == [
        {"a": 1, "b": "x"},
        {"a": 2, "b": "3"},
        {"a": None},
    ]


def test_they_arrive_in_the_dataset(tmp_path: Path) -> None:
    result, _ = run_import(hive(tmp_path), tmp_path / "out", episodes={"last_new_obs": "repeat"}, format="table")
    table = pa.concat_tables(open_dataset(result.dataset.uri).tables())
    assert table["date"].to_pylist() == [DAYS[0]] * 2 + [DAYS[1]] * 2 and table["hour"].to_pylist() == [8, 8, 9, 9]
    assert columns.OBS in table.column_names


@pytest.mark.parametrize("name", ["x.csv", "x.parquet", "x.ndjson", "x.arrow"])
def test_the_path_of_the_file_as_a_column(tmp_path: Path, name: str) -> None:
    table = read(hive(tmp_path, name), arguments={"include_file_paths": "file"})
    [first, _, _, last] = table["file"].to_pylist()
    assert first == f"{tmp_path}/in/date={DAYS[0]}/hour=08/{name}" and last != first


def test_a_path_column_that_is_there_already(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"include_file_paths is 'obs'; it must be a name that no column of .*x.csv has"):
        read(hive(tmp_path), arguments={"include_file_paths": "obs"})
