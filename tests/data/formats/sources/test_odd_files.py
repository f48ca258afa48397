"""Files that look like something else than they are, or that would be read by halves: read as they are, or refused."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import offline_core as offline
from offline_core.data.formats.sources.opening import SourceConfig, open_source
from offline_core.data.formats.sources.step_reader import Unreadable
from offline_core.errors import CorruptFileError, OfflineError, SchemaError, UnsafeDataError


def rows_of(path: Path) -> pl.DataFrame:
    found = [each for reader in open_source([str(path)]) for each in reader.batches()]
    return pl.DataFrame(pa.concat_tables([each for each in found if isinstance(each, pa.Table)])).drop(
        "_source_row", strict=False
    )


@pytest.mark.parametrize(
    "text",
    [
        "# a\n\n# b\nobs,action,reward\n0.5,1,1.5\n0.75,0,2.5\n",
        '# 5" pipe\nobs,action,reward\n0.5,1,1.5\n0.75,0,2.5\n',
        '# 5" pipe\n# 6" pipe\nobs,action,reward\n0.5,1,1.5\n0.75,0,2.5\n',
        "# obs,action,reward\n0.5,1,1.5\n0.75,0,2.5\n",
        "# by numpy\n# obs,action,reward\n0.5,1,1.5\n0.75,0,2.5\n",
        "sep=;\n# a comment\nobs;action;reward\n0.5;1;1.5\n0.75;0;2.5\n",
    ],
)
def test_comments_before_a_header(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    rows = rows_of(tmp_path / "x.csv")
    assert [name.lstrip("# ") for name in rows.columns] == ["obs", "action", "reward"]
    assert rows.rows() == [(0.5, 1, 1.5), (0.75, 0, 2.5)]


def test_a_first_column_of_numbers_of_rows(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("#,obs,action\n0,0.5,1\n1,0.75,0\n")
    assert rows_of(tmp_path / "x.csv").to_dict(as_series=False) == {"#": [0, 1], "obs": [0.5, 0.75], "action": [1, 0]}


@pytest.mark.parametrize("head", ["# a comment\nobs,action\n", ""])
def test_a_bad_line_after_what_was_skipped_is_one_bad_line(tmp_path: Path, head: str) -> None:
    (tmp_path / "x.csv").write_text(f"{head}0.5,1\n0.75,0,9\n0.25,1\n")
    found = [each for reader in open_source([str(tmp_path / "x.csv")]) for each in reader.batches()]
    [bad] = [each for each in found if isinstance(each, Unreadable)]
    line = 2 + head.count("\n")
    assert bad.row == 1 and f"line {line} has 3 values" in str(bad)
    assert sum(each.num_rows for each in found if isinstance(each, pa.Table)) == 2


@pytest.mark.parametrize(
    ("text", "given"),
    [("2019,2020\n0.5,1\n", {"has_header": True}), ("a report, of 3 parts\n# 7\n2019,2020\n0.5,1\n", {"skip_lines": 2})],
)
def test_what_is_said_of_lines_is_not_recognised_again(tmp_path: Path, text: str, given: dict[str, Any]) -> None:
    (tmp_path / "x.csv").write_text(text)
    [reader] = open_source([str(tmp_path / "x.csv")], SourceConfig(arguments=given))
    [table] = [each for each in reader.batches() if isinstance(each, pa.Table)]
    assert table.drop_columns(["_source_row"]).to_pydict() == {"2019": [0.5], "2020": [1]}


def test_episodes_do_not_go_on_in_the_next_file_of_a_zip(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for name, last in (("a", 0), ("b", 1)):
            archive.writestr(f"{name}.csv", f"obs,action,reward,done\n0.5,1,1,0\n0.75,0,2,0\n0.25,1,3,{last}\n")
    data = offline.import_data(tmp_path / "x.zip", output=tmp_path / "out")
    assert sorted(len(episode) for episode in data.episodes()) == [3, 3]


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_damage_in_a_zip_is_told_however_it_is_packed(tmp_path: Path, method: int) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w", method) as archive:
        archive.writestr("a.csv", "obs,action,reward\n" + "0.5,1,1\n" * 1000)
    data = bytearray((tmp_path / "x.zip").read_bytes())
    data[45:70] = bytes(25)
    (tmp_path / "x.zip").write_bytes(data)
    with pytest.raises(CorruptFileError, match="broken or encrypted zip file"):
        rows_of(tmp_path / "x.zip")


def hdf5(path: Path, **arrays: Any) -> Path:
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array
    return path


STEPS = {"observations": np.ones((4, 2)), "actions": np.ones((4, 1)), "rewards": np.arange(4.0)}


def test_what_is_one_longer_than_the_actions_is_told_by_its_zero(tmp_path: Path) -> None:
    longer = {"observations": np.ones((3, 2)), "actions": np.ones((2, 1))}
    path = hdf5(
        tmp_path / "x.h5",
        **{f"traj_0/{k}": v for k, v in {**longer, "rewards": [0, 5, 7], "dones": [False, False, True]}.items()},
    )
    [episode] = offline.import_data(path, output=tmp_path / "out").episodes()
    assert episode.rewards.tolist() == [5, 7] and episode.terminated
    path = hdf5(tmp_path / "y.h5", **{f"traj_0/{k}": v for k, v in {**longer, "rewards": [1, 5, 7]}.items()})
    with pytest.raises(SchemaError, match="one value more of rewards than actions"):
        rows_of(path)


def test_several_names_for_one_array_are_refused(tmp_path: Path) -> None:
    with h5py.File(hdf5(tmp_path / "x.h5", **STEPS), "a") as file:
        file["again"] = file["rewards"]
    with pytest.raises(UnsafeDataError, match="several names"):
        rows_of(tmp_path / "x.h5")
    with h5py.File(hdf5(tmp_path / "y.h5", **STEPS), "a") as file:
        file["again"] = h5py.SoftLink("/rewards")
    with pytest.raises(UnsafeDataError, match="several names"):
        rows_of(tmp_path / "y.h5")


def test_an_empty_buffer_has_no_rows(tmp_path: Path) -> None:
    with h5py.File(
        hdf5(tmp_path / "x.h5", obs=np.ones((8, 2)), act=np.ones((8, 1)), rew=np.ones(8), _meta=np.zeros(1)), "a"
    ) as file:
        del file["_meta"]
        for name in ("obs", "act", "rew"):
            file.move(name, f"_meta/{name}")
        file.attrs.update(_size=0, _index=0)
    assert not [table for reader in open_source([str(tmp_path / "x.h5")]) for table in reader.batches()]


@pytest.mark.parametrize(("names", "count"), [(["observations", "actions", "rewards"], 3), ([], 1)])
def test_fewer_episodes_than_a_file_says_are_damage(tmp_path: Path, names: list[str], count: int) -> None:
    arrays = {f"{name}_{episode}": STEPS[name] for name in names for episode in range(2)}
    path = hdf5(tmp_path / "x.h5", columns=np.array(names, dtype=h5py.string_dtype()), num_episodes=count, **arrays)
    with pytest.raises(CorruptFileError, match="episode"):
        rows_of(path)


def test_groups_without_actions_are_said(tmp_path: Path) -> None:
    arrays = {f"episode_0/{name}": array for name, array in STEPS.items()} | {"episode_1/observations": np.ones((5, 2))}
    data = offline.import_data(hdf5(tmp_path / "x.h5", **arrays), output=tmp_path / "out")
    assert any("episode_1 of" in note and "left out" in note for note in data.result.notes)


def test_steps_of_several_environments_are_no_trajectories(tmp_path: Path) -> None:
    dones = np.zeros((50, 4), bool)
    dones[20, 1] = True
    np.savez(tmp_path / "x.npz", obs=np.ones((50, 4, 3)), actions=np.ones((50, 4, 2)), rewards=np.ones((50, 4)), dones=dones)
    with pytest.raises(SchemaError, match="steps and environments"):
        rows_of(tmp_path / "x.npz")


@pytest.mark.parametrize(
    "columns",
    [
        {"state": [[0.5, 1.0]] * 3, "action": [[0.5, 1.0]] * 3, "reward": [[1.0, 2.0]] * 3, "next_state": [[0.5, 1.0]] * 3},
        {"t": [0, 1, 2], "obs": [[0.5, 1.0]] * 3, "action": [[1, 0], [0], [1]], "reward": [[1.0, 2.0], [1.0], [2.0]]},
        {
            "obs": [[0.5, 1.0]] * 3,
            "action": [0, 1, 0],
            "reward": [1.0, 2.0, 3.0],
            "history": [[{"action": 0, "reward": 1.0}]] * 3,
        },
    ],
)
def test_rows_with_lists_that_are_steps(tmp_path: Path, columns: dict[str, Any]) -> None:
    pl.DataFrame(columns).write_parquet(tmp_path / "x.parquet")
    assert rows_of(tmp_path / "x.parquet").height == 3


def test_rows_that_look_like_episodes_and_are_none_are_refused_as_such(tmp_path: Path) -> None:
    lists = {
        "obs": [[[0.5], [1.0]], [[2.0]]],
        "action": [[1, 0], [0]],
        "reward": [[1.0, 2.0], [1.0]],
        "done": ["true", "maybe"],
    }
    pl.DataFrame(lists).write_parquet(tmp_path / "x.parquet")
    rows = rows_of(tmp_path / "x.parquet")
    assert rows["done"].to_list() == [False, True, False]
    pl.DataFrame(lists | {"r": [[1.0, 2.0], [1.0]], "reward": [1.0, 2.0]}).write_parquet(tmp_path / "y.parquet")
    with pytest.raises(OfflineError):
        offline.import_data(tmp_path / "y.parquet", output=tmp_path / "out")
