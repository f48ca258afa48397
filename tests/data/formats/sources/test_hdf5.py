"""D4RL's HDF5 files as step tables."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pytest

from offline_core.data.episodes.arrow import read_column
from offline_core.data.formats.sources import hdf5
from offline_core.data.formats.sources.hdf5 import Hdf5File
from offline_core.data.formats.sources.step_reader import note_of
from offline_core.data.store.location import Location
from offline_core.errors import CorruptFileError, SchemaError, SpaceError, StorageError
from tests.data.datasets.factories import cut_in_half
from tests.data.formats.sources.factories import imported

STEPS = 1000


def hopper(steps: int = STEPS, **changes: Any) -> dict[str, Any]:
    """What hopper-medium-v2 holds, by D4RL's names, shapes and types."""
    rng = np.random.default_rng(0)
    terminals = np.zeros(steps, bool)
    terminals[137::138] = True
    timeouts = np.zeros(steps, bool)
    timeouts[-1] = True
    arrays: dict[str, Any] = {
        "observations": rng.standard_normal((steps, 11), np.float32),
        "actions": rng.uniform(-1, 1, (steps, 3)).astype(np.float32),
        "rewards": rng.standard_normal(steps, np.float32),
        "terminals": terminals,
        "timeouts": timeouts,
        "infos/qpos": rng.standard_normal((steps, 6)),
        "infos/action_log_probs": rng.standard_normal(steps, np.float32),
        "metadata/algorithm": "SAC",
        "metadata/policy/fc0/weight": np.ones((256, 11), np.float32),
    }
    return {name: array for name, array in (arrays | changes).items() if array is not None}


def write(path: Path, arrays: dict[str, Any], **how: Any) -> Path:
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, **(how if np.ndim(array) else {}))
    return path


def read(path: Path) -> pa.Table:
    return pa.concat_tables(Hdf5File(Location.of(str(path))).batches())


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_a_file_of_d4rl(tmp_path: Path, compression: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdf5, "BATCH_BYTES", 300 * (11 * 4 + 3 * 4 + 4 + 1 + 1 + 6 * 8 + 4))
    arrays = hopper()
    path = write(tmp_path / "hopper_medium-v2.hdf5", arrays, compression=compression)
    parts = list(Hdf5File(Location.of(str(path))).batches())
    assert [part.num_rows for part in parts] == [300, 300, 300, 100]
    table = pa.concat_tables(parts)
    names = {
        "observations": "obs",
        "actions": "actions",
        "rewards": "rewards",
        "terminals": "terminateds",
        "timeouts": "truncateds",
        "infos/qpos": "infos_qpos",
        "infos/action_log_probs": "infos_action_log_probs",
    }
    assert sorted(table.column_names) == sorted(names.values())
    for theirs, ours in names.items():
        found = read_column(table, ours)
        np.testing.assert_array_equal(found, arrays[theirs])
        assert found.dtype == arrays[theirs].dtype


def test_next_observations(tmp_path: Path) -> None:
    following = np.random.default_rng(1).random((STEPS, 11))
    table = read(write(tmp_path / "x.hdf5", hopper(next_observations=following)))
    np.testing.assert_array_equal(read_column(table, "new_obs"), following)


def test_no_timeouts(tmp_path: Path) -> None:
    assert "truncateds" not in read(write(tmp_path / "x.hdf5", hopper(timeouts=None))).column_names


def test_single_numbers_with_an_axis_of_their_own(tmp_path: Path) -> None:
    """As in D4RL's earlier files; its own reader squeezes them too."""
    arrays = hopper()
    odd = {name: arrays[name][:, None].astype(np.float32) for name in ("rewards", "terminals", "timeouts")}
    table = read(write(tmp_path / "x.hdf5", arrays | odd))
    assert table.schema.field("rewards").type == pa.float32()
    np.testing.assert_array_equal(table["terminateds"], arrays["terminals"])
    np.testing.assert_array_equal(table["rewards"], arrays["rewards"])


def test_groups_of_observations_are_structs(tmp_path: Path) -> None:
    parts = {"observations/hand/angle": np.arange(STEPS), "observations/image": np.ones((STEPS, 4, 4, 3), np.uint8)}
    table = read(write(tmp_path / "x.hdf5", hopper(observations=None) | parts))
    found = read_column(table, "obs")
    assert found.keys() == {"hand", "image"}
    np.testing.assert_array_equal(found["hand"]["angle"], np.arange(STEPS))
    assert (found["image"].shape, found["image"].dtype) == ((STEPS, 4, 4, 3), np.uint8)


def test_other_arrays_keep_their_names(tmp_path: Path) -> None:
    goals = np.random.default_rng(1).random((STEPS, 2))
    table = read(write(tmp_path / "x.hdf5", hopper(goal=goals) | {"env/wind/speed": goals[:, 0]}))
    np.testing.assert_array_equal(read_column(table, "goal"), goals)
    np.testing.assert_array_equal(table["env_wind_speed"], goals[:, 0])


def test_unequal_lengths_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "x.hdf5", hopper(actions=np.ones((999, 3))))
    with pytest.raises(SchemaError, match=r"x\.hdf5 .*actions 999, .*obs 1000"):
        read(path)
    [first, *_] = Hdf5File(Location.of(str(write(tmp_path / "x.hdf5", hopper(discount=0.99))))).batches()
    assert "discount" not in first.column_names and "discount of" in str(note_of(first))


def test_missing_arrays_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "x.hdf5", hopper(rewards=None, terminals=None))
    with pytest.raises(SchemaError, match=r"x\.hdf5 .*observations.* lacks rewards"):
        read(path)


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="two columns infos_qpos"):
        read(write(tmp_path / "x.hdf5", hopper(infos_qpos=np.ones(STEPS))))


def test_values_that_no_column_holds(tmp_path: Path) -> None:
    path = tmp_path / "x.hdf5"
    with pytest.raises(SpaceError, match=r"x\.hdf5: infos_note have dtype \|S4"):
        read(write(path, hopper() | {"infos/note": np.array([b"text"] * STEPS)}))
    with h5py.File(write(path, hopper(10)), "a") as file:
        file.create_dataset("infos/path", (10,), h5py.vlen_dtype(np.float64))
    with pytest.raises(SpaceError, match=r"x\.hdf5: infos/path has arrays of several lengths.*source\.columns"):
        read(path)
    with h5py.File(write(path, hopper(10)), "a") as file:
        file.create_dataset("infos/note", data=[b"caf\xe9"] * 10, dtype=h5py.string_dtype("ascii"))
    with pytest.raises(SpaceError, match=r"x\.hdf5: infos/note has text that is not UTF-8.*source\.columns"):
        read(path)


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_text(tmp_path: Path, encoding: str) -> None:
    with h5py.File(write(tmp_path / "x.hdf5", hopper(10)), "a") as file:
        file.create_dataset("infos/note", data=["café".encode()] * 10, dtype=h5py.string_dtype(encoding))
    assert read(tmp_path / "x.hdf5")["infos_note"].to_pylist() == ["café"] * 10


def test_other_files_are_told(tmp_path: Path) -> None:
    (tmp_path / "x.hdf5").write_bytes(b"observations,actions\n" * 100)
    with pytest.raises(CorruptFileError, match=r"x\.hdf5 cannot be read as hdf5"):
        read(tmp_path / "x.hdf5")
    with pytest.raises(StorageError, match=r"y\.hdf5: it does not exist"):
        read(tmp_path / "y.hdf5")


def test_damage_is_told(tmp_path: Path) -> None:
    path = write(tmp_path / "x.hdf5", hopper())
    cut_in_half(path)
    with pytest.raises(CorruptFileError, match=r"x\.hdf5 .*truncated"):
        read(path)
    write(path, hopper(), compression="gzip", chunks=True)
    content = bytearray(path.read_bytes())
    with h5py.File(path) as file:
        chunk = file["observations"].id.get_chunk_info(0)
    content[chunk.byte_offset : chunk.byte_offset + 50] = bytes(50)
    path.write_bytes(content)
    with pytest.raises(CorruptFileError, match=r"x\.hdf5"):
        read(path)


def test_a_damaged_file_crashes_no_process_that_ends_without_a_last_collection(tmp_path: Path) -> None:
    """As commands end."""
    cut_in_half(write(tmp_path / "x.hdf5", hopper()))
    script = """
        import atexit, gc, sys
        from offline_core.data.formats.sources.hdf5 import Hdf5File
        from offline_core.data.store.location import Location
        from offline_core.errors import CorruptFileError

        atexit.register(gc.freeze)
        try:
            list(Hdf5File(Location.of(sys.argv[1])).batches())
        except CorruptFileError as error:
            kept = error  # with its traceback, as where a command says it
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "x.hdf5")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("value", [np.nan, 0.5, 2])
def test_flags_that_are_neither_true_nor_false(tmp_path: Path, value: float) -> None:
    """They are left for the import to refuse, and not taken for ends."""
    write(tmp_path / "x.hdf5", hopper(10, terminals=np.full(10, value)))
    with pytest.raises(SchemaError, match=r"x\.hdf5, row 0: Column 'terminateds' holds"):
        imported(tmp_path, tmp_path / "x.hdf5", mapping={}, episodes={"last_new_obs": "repeat"})


@pytest.mark.parametrize("name", ["rewards", "terminals", "timeouts"])
def test_a_group_where_one_array_has_to_be(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "x.hdf5", hopper(10, **{name: None, f"{name}/inner": np.ones(10)}))
    with pytest.raises(SchemaError, match=f"has a group of arrays as '{name}', which must be one array"):
        read(path)


def test_chosen_arrays(tmp_path: Path) -> None:
    """Some others may hold anything."""
    path = write(tmp_path / "x.hdf5", hopper(10, goal="there", **{"infos/date": np.array([b"2024"] * 3)}))
    with pytest.raises(SchemaError, match=r"infos_date 3.*Choose those that do with source\.columns"):
        read(path)
    wanted = ("observations", "actions", "rewards", "terminals", "infos/qpos")
    table = pa.concat_tables(Hdf5File(Location.of(str(path)), wanted).batches())
    assert set(table.column_names) == {"obs", "actions", "rewards", "terminateds", "infos_qpos"}
    config = {"source": {"columns": list(wanted)}, "mapping": {}, "episodes": {"last_new_obs": "repeat"}}
    assert imported(tmp_path, path, **config).counts.steps == 10
    with pytest.raises(SchemaError, match=r"x\.hdf5 has no nothing; it has .*observations"):
        list(Hdf5File(Location.of(str(path)), ("nothing",)).batches())
