"""HDF5 files whose groups are episodes, and replay buffers: robomimic, ManiSkill, Minari, d3rlpy, tianshou."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import h5py
import minari
import numpy as np
import pyarrow as pa
import pytest
from gymnasium import spaces
from minari.data_collector import EpisodeBuffer

from offline_core.data.episodes.arrow import read_column
from offline_core.data.formats.sources.opening import SourceConfig, open_source
from offline_core.data.formats.sources.step_reader import note_of
from offline_core.errors import SchemaError, UnsafeDataError
from tests.data.datasets.factories import Bomb
from tests.data.formats.sources.factories import format_of, imported_episodes, tables_of

RNG = np.random.default_rng(0)


def write(path: Path, arrays: dict[str, Any], **attributes: Any) -> Path:
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array
        file.attrs.update(attributes)
    return path


def read(path: Path, **config: Any) -> pa.Table:
    [reader] = open_source([str(path)], SourceConfig(**config))
    return pa.concat_tables(tables_of(reader))


def robomimic(*lengths: int) -> dict[str, Any]:
    """As `robomimic/scripts/dataset_states_to_obs.py` writes it."""
    found: dict[str, Any] = {"mask/train": np.array([b"demo_0", b"demo_1"])}
    for number, steps in enumerate(lengths):
        position, image = RNG.random((steps + 1, 3)), RNG.integers(0, 255, (steps + 1, 8, 8, 3), np.uint8)
        parts = {"obs": slice(0, -1), "next_obs": slice(1, None)}
        demo = {
            "actions": RNG.random((steps, 7)),
            "dones": np.arange(steps) == steps - 1,
            "rewards": np.ones(steps),
            "states": RNG.random((steps, 32)),
            **{f"{part}/robot0_eef_pos": position[rows] for part, rows in parts.items()},
            **{f"{part}/agentview_image": image[rows] for part, rows in parts.items()},
        }
        found |= {f"data/demo_{number}/{name}": array for name, array in demo.items()}
    return found


def test_demonstrations_of_robomimic(tmp_path: Path) -> None:
    arrays = robomimic(*[3] * 11)
    path = write(tmp_path / "low_dim.hdf5", arrays)
    assert format_of(path) == "hdf5"
    table = read(path)
    ids = list(dict.fromkeys(table["eps_id"].to_pylist()))
    assert [each.partition("/")[2] for each in ids] == [f"demo_{n}" for n in range(11)], "in the order of their numbers"
    assert {*table.column_names} == {"eps_id", "t", "actions", "dones", "rewards", "states", "obs", "new_obs"}
    found = read_column(table, "obs")
    np.testing.assert_array_equal(found["robot0_eef_pos"][30:], arrays["data/demo_10/obs/robot0_eef_pos"])
    np.testing.assert_array_equal(found["agentview_image"][3:6], arrays["data/demo_1/obs/agentview_image"])
    episodes = imported_episodes(tmp_path, path, mapping={})
    assert [(len(each), each.terminated) for each in episodes] == [(3, True)] * 11
    chosen = read(path, columns=["actions", "obs/robot0_eef_pos", "rewards", "dones"])
    assert {*chosen.column_names} == {"eps_id", "t", "actions", "dones", "rewards", "obs"}
    assert {*read_column(chosen, "obs")} == {"robot0_eef_pos"}


def test_trajectories_of_maniskill(tmp_path: Path) -> None:
    """Observations and states are one longer than actions."""
    arrays = {
        f"traj_{n}/{name}": array
        for n in range(2)
        for name, array in {
            "obs": np.arange(8).reshape(4, 2) + 10.0 * n,
            "actions": np.zeros((3, 2)),
            "terminated": np.zeros(3, bool),
            "truncated": np.array([False, False, True]),
            "success": np.array([False, True, True]),
            "env_states/actors/cube": np.arange(4),
        }.items()
    }
    table = read(write(tmp_path / "x.h5", arrays))
    assert read_column(table, "new_obs")[2].tolist() == [6, 7] and read_column(table, "obs")[2].tolist() == [4, 5]
    assert table["truncateds"].to_pylist() == [False, False, True] * 2
    assert table["env_states_actors_cube"].to_pylist() == [0, 1, 2] * 2
    assert table["rewards"].to_pylist() == [0.0] * 6 and "no rewards: all are 0" in str(note_of(table))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_file_of_a_minari_dataset_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    space = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Tuple([spaces.Discrete(3), spaces.Discrete(9)])})
    buffers = [
        EpisodeBuffer(
            observations={"a": RNG.random((4, 2), np.float32), "b": (np.arange(4) % 3, np.arange(4) + n)},
            actions=np.arange(3) % 2,
            rewards=np.ones(3),
            terminations=np.zeros(3, bool),
            truncations=np.arange(3) == 2,
            infos={"x": np.arange(4)},
        )
        for n in range(2)
    ]
    minari.create_dataset_from_buffers("xx/yy-v0", buffers, observation_space=space, action_space=spaces.Discrete(2))
    table = read(tmp_path / "xx/yy-v0/data/main_data.hdf5")
    assert [each.tolist() for each in read_column(table, "new_obs")["b"]] == [[1, 2, 0] * 2, [1, 2, 3, 2, 3, 4]]
    assert table["truncateds"].to_pylist() == [False, False, True] * 2 and table["infos_x"].to_pylist() == [1, 2, 3] * 2


def test_episodes_of_d3rlpy(tmp_path: Path) -> None:
    """As `d3rlpy.dataset.dump` writes them: an array of each episode, and of each part of a tuple."""
    arrays: dict[str, Any] = {
        "columns": ["observations", "actions", "rewards", "terminated"],
        "num_episodes": 2,
        "version": "2.1",
    }
    for number, steps in enumerate((3, 2)):
        arrays |= {f"observations_{number}_{part}": np.full((steps, 2), part + 10 * number) for part in range(2)}
        arrays |= {f"actions_{number}": np.arange(steps)[:, None], f"rewards_{number}": np.ones((steps, 1))}
        arrays[f"terminated_{number}"] = number == 0
    table = read(write(tmp_path / "x.h5", arrays))
    assert table["t"].to_pylist() == [0, 1, 2, 0, 1] and table["rewards"].to_pylist() == [1.0] * 5
    assert table["terminateds"].to_pylist() == [False, False, True, False, False]
    assert [part[:, 0].tolist() for part in read_column(table, "obs")] == [[0] * 3 + [10] * 2, [1] * 3 + [11] * 2]


def test_ends_of_d3rlpys_first_version(tmp_path: Path) -> None:
    arrays = {name: np.ones((3, 1)) for name in ("observations", "actions", "rewards")}
    ends = {"terminals": np.array([0.0, 0.0, 0.0]), "episode_terminals": np.array([0.0, 0.0, 1.0])}
    table = read(write(tmp_path / "x.h5", arrays | ends))
    assert table["terminateds"].to_pylist() == [0, 0, 0] and table["dones"].to_pylist() == [0, 0, 1]


def tianshou(path: Path, size: int, at: int, rows: int = 5, **arrays: Any) -> Path:
    """As `ReplayBuffer.save_hdf5` writes it: arrays of `_meta`, numbers as attributes, anything else pickled."""
    meta = {
        "obs": np.arange(rows * 2.0).reshape(rows, 2),
        "act": np.arange(rows),
        "rew": np.arange(rows) / 2,
        "terminated": np.arange(rows) % 3 == 2,
        "truncated": np.zeros(rows, bool),
        "done": np.arange(rows) % 3 == 2,
        "obs_next": np.arange(rows * 2.0).reshape(rows, 2) + 2,
        "info/lives": np.arange(rows),
    }
    write(path, {f"_meta/{name}": array for name, array in meta.items()} | arrays, maxsize=rows, _size=size, _index=at)
    with h5py.File(path, "a") as file:
        file["_meta/policy"] = np.frombuffer(pickle.dumps(Bomb(path.with_name("exploded"))), np.uint8)
        file["_meta/policy"].attrs["__data_type__"] = "object"
        file["_meta"].attrs["__data_type__"] = "Batch"
    return path


@pytest.mark.parametrize(("size", "at", "rows"), [(3, 3, [0, 1, 2]), (5, 2, [2, 3, 4, 0, 1]), (5, 0, [0, 1, 2, 3, 4])])
def test_a_buffer_of_tianshou_is_read_from_its_oldest_row(tmp_path: Path, size: int, at: int, rows: list[int]) -> None:
    table = read(tianshou(tmp_path / "x.hdf5", size, at))
    assert table["actions"].to_pylist() == rows and table["info_lives"].to_pylist() == rows
    assert table["terminateds"].to_pylist() == [row % 3 == 2 for row in rows] and "policy" not in table.column_names
    assert read_column(table, "new_obs")[:, 0].tolist() == [2.0 * row + 2 for row in rows]
    assert not (tmp_path / "exploded").exists()


def test_a_buffer_of_several_environments(tmp_path: Path) -> None:
    """Two rings of three rows: the first is full and goes on at its second row, the other has two."""
    parts = {"_offset": np.array([0, 3]), "_lengths": np.array([3, 2]), "last_index": np.array([0, 4])}
    table = read(tianshou(tmp_path / "x.hdf5", 5, 0, rows=6, **parts))
    assert table["actions"].to_pylist() == [1, 2, 0, 3, 4]
    assert table["is_first"].to_pylist() == [True, False, False, True, False]


@pytest.mark.parametrize("size", [-1, 10**15])
def test_a_buffer_with_more_rows_than_there_are(tmp_path: Path, size: int) -> None:
    with pytest.raises(SchemaError, match="does not say, as buffers of tianshou do, which rows are filled"):
        read(tianshou(tmp_path / "x.hdf5", size, 0))


def test_an_episode_without_actions_of_its_length(tmp_path: Path) -> None:
    arrays = {"data/demo_0/obs": np.ones((3, 2)), "data/demo_0/actions": np.ones((5, 2)), "data/demo_0/rewards": np.ones(5)}
    with pytest.raises(SchemaError, match=r"demo_0 has 5 actions and obs \(3, 2\)"):
        read(write(tmp_path / "x.hdf5", arrays))
    with pytest.raises(SchemaError, match=r"has actions and lacks obs"):
        read(write(tmp_path / "y.hdf5", {"data/demo_0/actions": np.ones((5, 2))}))


def test_a_text_that_would_fill_the_memory_is_refused(tmp_path: Path) -> None:
    arrays = {"obs": np.zeros((10_000, 1)), "actions": np.zeros(10_000), "note": "x" * 100_000}
    path = write(tmp_path / "x.hdf5", {f"demo_0/{name}": array for name, array in arrays.items()})
    with pytest.raises(UnsafeDataError, match=r"demo_0: note is one value an episode"):
        read(path)
    assert read(path, columns=["obs", "actions"]).num_rows == 10_000


def test_flat_arrays_under_the_names_of_tianshou(tmp_path: Path) -> None:
    arrays = {
        "obs": np.eye(4),
        "kind": np.dtype("f8"),
        "act": np.arange(4),
        "rew": np.ones(4),
        "done": np.arange(4) == 3,
        "obs_next": np.eye(4),
    }
    table = read(write(tmp_path / "x.h5", arrays))
    assert {*table.column_names} == {"obs", "actions", "rewards", "dones", "new_obs"}
