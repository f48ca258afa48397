"""NumPy archives as step tables."""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from offline_core.data.episodes.arrow import read_column
from offline_core.data.formats.sources import npz
from offline_core.data.formats.sources.npz import NpzFile
from offline_core.data.formats.sources.opening import SourceConfig, open_source
from offline_core.data.formats.sources.step_reader import StepReader, note_of
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError, CorruptFileError, SchemaError, SpaceError, StorageError, UnsafeDataError
from tests.cases import examples
from tests.data.datasets.factories import Bomb, cut_in_half, garble
from tests.data.formats.sources.factories import imported_episodes

NUMBERS = st.one_of(
    npst.integer_dtypes(), npst.unsigned_integer_dtypes(), npst.boolean_dtypes(), npst.floating_dtypes(sizes=(16, 32, 64))
)
STEPS = npst.arrays(NUMBERS, st.tuples(st.just(7), st.integers(1, 3), st.integers(1, 2)) | st.just((7,)))


def read(path: Path) -> pa.Table:
    return pa.concat_tables(NpzFile(Location.of(str(path))).batches())


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    arrays=st.dictionaries(
        st.text("abc_/", min_size=1, max_size=5).filter(lambda name: "//" not in name and name[0] != "/"), STEPS
    ),
    compressed=st.booleans(),
)
def test_what_numpy_saves_is_read(tmp_path: Path, arrays: dict[str, np.ndarray], compressed: bool) -> None:
    if not arrays:
        return
    (np.savez_compressed if compressed else np.savez)(tmp_path / "steps.npz", **arrays)
    table = read(tmp_path / "steps.npz")
    assert set(table.column_names) == set(arrays)
    for name, array in arrays.items():
        found = read_column(table, name)
        np.testing.assert_array_equal(found, array)
        assert found.dtype == array.dtype.newbyteorder("=")


def test_batches_are_of_moderate_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npz, "BATCH_BYTES", 100 * 5 * 4)
    obs = np.arange(1005 * 4, dtype=np.float32).reshape(1005, 4)
    np.savez(tmp_path / "steps.npz", obs=obs, rewards=obs[:, 0])
    parts = list(NpzFile(Location.of(str(tmp_path / "steps.npz"))).batches())
    assert [part.num_rows for part in parts] == [*[100] * 10, 5]
    np.testing.assert_array_equal(read_column(pa.concat_tables(parts), "obs"), obs)


def test_text_is_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "steps.npz", instruction=np.array(["left", "right"]), rewards=np.ones(2))
    assert read(tmp_path / "steps.npz")["instruction"].to_pylist() == ["left", "right"]


def test_one_row_too_many_is_not_guessed_about(tmp_path: Path) -> None:
    np.savez(tmp_path / "steps.npz", obs=np.ones((6, 2)), actions=np.ones(5), rewards=np.ones(5))
    with pytest.raises(SchemaError, match=r"steps\.npz .*obs 6, actions 5, rewards 5.*next observations"):
        read(tmp_path / "steps.npz")


def test_a_number_is_a_column_but_none_of_what_steps_have(tmp_path: Path) -> None:
    np.savez(tmp_path / "steps.npz", obs=np.ones((5, 2)), gamma=0.99)
    table = read(tmp_path / "steps.npz")
    assert table["gamma"].to_pylist() == [0.99] * 5 and "gamma of NPZ files is one value" in str(note_of(table))
    np.savez(tmp_path / "steps.npz", obs=np.ones((5, 2)), rewards=0.99)
    with pytest.raises(SchemaError, match="rewards none"):
        read(tmp_path / "steps.npz")
    np.savez(tmp_path / "steps.npz", obs=np.ones((5, 2)), actions=np.ones(4), gamma=0.99)
    with pytest.raises(SchemaError, match=r"their rows are: obs 5, actions 4\."):
        read(tmp_path / "steps.npz")


@pytest.mark.parametrize("name", ["terminateds", "dones", "is_first"])
def test_a_single_end_that_is_a_text_is_refused(name: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "steps.npz", obs=np.ones((3, 2)), rewards=np.ones(3), **{name: "True"})
    with pytest.raises(SchemaError, match=rf"{name} is one value, and a text: save it as true or false"):
        read(tmp_path / "steps.npz")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("terminateds", True, [False, False, True]),
        ("done", 1.0, [False, False, True]),
        ("done", 0, [False] * 3),
        ("is_first", True, [True, False, False]),
        ("is_first", False, [False] * 3),
        ("dones", np.nan, [np.nan] * 3),
        ("dones", 2, [2] * 3),
        ("crashed", True, [True] * 3),
    ],
)
def test_a_single_end_is_one_of_the_last_row_if_it_is_one(name: str, value: Any, expected: list[Any], tmp_path: Path) -> None:
    np.savez(tmp_path / "steps.npz", obs=np.ones((3, 2)), rewards=np.ones(3), **{name: value})
    table = read(tmp_path / "steps.npz")
    np.testing.assert_array_equal(table[name].to_pylist(), expected)
    is_placed = isinstance(expected[0], bool) and name != "crashed"
    assert ("an end is one of its last row" in str(note_of(table))) == is_placed
    assert f"{name} of NPZ files is one value" in str(note_of(table))


def test_single_values_are_noted_each_for_what_it_is(tmp_path: Path) -> None:
    np.savez(tmp_path / "steps.npz", obs=np.ones((3, 2)), eps_id=7, gamma=0.9, terminateds=True)
    assert note_of(read(tmp_path / "steps.npz")) == (
        "eps_id, gamma of NPZ files are one value each, and not one a step: each of its rows gets it. terminateds of NPZ files "
        "is one value, and not one a step: an end is one of its last row, and is_first of its first."
    )


@pytest.mark.parametrize("role", ["terminateds", "dones", "is_first"])
def test_a_single_value_that_is_mapped_to_an_end_is_refused(role: str, tmp_path: Path) -> None:
    for number in range(2):
        arrays = {"obs": np.ones((3, 2)), "actions": np.zeros(3, int), "rewards": np.ones(3)}
        np.savez(tmp_path / f"{number}.npz", crashed=number == 1, **arrays)
    with pytest.raises(ConfigError, match=rf"one value of crashed for all steps, and mapping\.{role} needs one a step"):
        imported_episodes(tmp_path, tmp_path, mapping={role: "crashed"})


def test_objects_are_refused_and_not_unpickled(tmp_path: Path) -> None:
    objects = np.empty(1, object)
    objects[0] = Bomb(tmp_path / "exploded")
    np.savez(tmp_path / "steps.npz", obs=np.ones(1), infos=objects)
    with pytest.raises(UnsafeDataError, match=r"steps\.npz"):
        read(tmp_path / "steps.npz")
    assert not (tmp_path / "exploded").exists()


def test_numbers_that_no_column_holds(tmp_path: Path) -> None:
    np.savez(tmp_path / "steps.npz", phase=np.ones(3, complex))
    with pytest.raises(SpaceError, match=r"steps\.npz: phase have dtype complex128"):
        read(tmp_path / "steps.npz")


def test_chosen_arrays(tmp_path: Path) -> None:
    """Some others may hold anything."""
    path = tmp_path / "steps.npz"
    np.savez(path, obs=np.ones((5, 2)), gamma=0.99, date=np.array(["2024-05-06"] * 5, "datetime64[D]"))
    assert open_source([str(path)], SourceConfig(columns=["obs"]))[0].uri == str(path)
    assert pa.concat_tables(NpzFile(Location.of(str(path)), ("obs",)).batches()).column_names == ["obs"]
    with pytest.raises(SpaceError, match=r"date have dtype .*by source\.columns"):
        list(NpzFile(Location.of(str(path)), ("obs", "date")).batches())
    with pytest.raises(SchemaError, match=r"steps\.npz has no array reward; it has obs, gamma, date"):
        list(NpzFile(Location.of(str(path)), ("reward",)).batches())


def _text() -> bytes:
    return b"text"


def _pickled() -> bytes:
    return pickle.dumps([1, 2])


def _array_alone() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.ones(3))
    return buffer.getvalue()


def _zip_of_text() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("readme.txt", "no array")
    return buffer.getvalue()


@pytest.mark.parametrize("content", [bytes, _text, _pickled, _array_alone, _zip_of_text])
def test_other_files_are_told(tmp_path: Path, content: Callable[[], bytes]) -> None:
    (tmp_path / "steps.npz").write_bytes(content())
    with pytest.raises(CorruptFileError, match=r"steps\.npz cannot be read as npz"):
        read(tmp_path / "steps.npz")


def test_damage_is_told(tmp_path: Path) -> None:
    path = tmp_path / "steps.npz"
    np.savez(path, obs=np.random.default_rng(0).random((100, 4)))
    cut_in_half(path)
    with pytest.raises(CorruptFileError, match=r"steps\.npz"):
        read(path)
    np.savez(path, obs=np.random.default_rng(0).random((100, 4)))
    garble(path, 1000, 1010)
    with pytest.raises(CorruptFileError, match=r"CRC"):
        read(path)


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="it does not exist"):
        read(tmp_path / "steps.npz")


def test_a_reader_opens_nothing_and_travels(tmp_path: Path) -> None:
    reader = NpzFile(Location.of(str(tmp_path / "later.npz")))
    assert isinstance(reader, StepReader)
    moved = pickle.loads(pickle.dumps(reader))
    np.savez(tmp_path / "later.npz", obs=np.arange(3))
    for _ in range(2):
        assert pa.concat_tables(moved.batches())["obs"].to_pylist() == [0, 1, 2]


def test_arrays_of_stable_baselines(tmp_path: Path) -> None:
    """As `generate_expert_traj` writes them."""
    arrays = {
        "obs": np.ones((5, 2)),
        "actions": np.ones((5, 1)),
        "rewards": np.ones(5),
        "episode_returns": np.array([3.0, 2.0]),
    }
    np.savez(tmp_path / "expert.npz", **arrays, episode_starts=np.array([True, False, False, True, False]))
    table = read(tmp_path / "expert.npz")
    assert {*table.column_names} == {"obs", "actions", "rewards", "episode_starts"}
    assert "episode_returns of" in str(note_of(table))
    config = {"mapping": {}, "episodes": {"last_new_obs": "repeat"}}
    found = imported_episodes(tmp_path, tmp_path / "expert.npz", **config)
    assert sorted(len(each) for each in found) == [2, 3]


TRAJECTORIES = (np.arange(8.0).reshape(4, 2), np.arange(6.0).reshape(3, 2) + 100)
"""Observations of three and of two steps."""


def trajectories(form: str) -> dict[str, np.ndarray]:
    rews, acts = np.arange(5.0), np.arange(5)
    if form == "imitation":  # `imitation.data.types.save` of version 0.3
        obs = np.concatenate(TRAJECTORIES)
        return {"obs": obs, "acts": acts, "rews": rews, "terminal": np.array([True, False]), "indices": np.array([3])}
    obs = np.concatenate([each[:-1] for each in TRAJECTORIES])
    where = {"episode_ends": np.array([3, 5]), "lengths": np.array([3, 2])}[form]
    return {"obs": obs, "acts": acts, "rews": rews, "terminal": np.array([True, False]), form: where}


@pytest.mark.parametrize("form", ["imitation", "episode_ends", "lengths"])
def test_trajectories_one_after_the_other(tmp_path: Path, form: str) -> None:
    np.savez_compressed(tmp_path / "x.npz", **trajectories(form))
    table = read(tmp_path / "x.npz")
    assert [each[-2:] for each in table["eps_id"].to_pylist()] == ["/0"] * 3 + ["/1"] * 2
    assert table["actions"].to_pylist() == [0, 1, 2, 3, 4] and table["t"].to_pylist() == [0, 1, 2, 0, 1]
    assert table["terminateds"].to_pylist() == [False, False, True, False, False]
    np.testing.assert_array_equal(read_column(table, "obs"), np.concatenate([each[:-1] for each in TRAJECTORIES]))
    assert ("new_obs" in table.column_names) == (form == "imitation") and "2 trajectories" in str(note_of(table))
    if form == "imitation":
        np.testing.assert_array_equal(read_column(table, "new_obs"), np.concatenate([each[1:] for each in TRAJECTORIES]))


def test_trajectories_of_one_length_by_two_axes(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "x.npz",
        observations=np.arange(24.0).reshape(2, 4, 3),
        actions=np.zeros((2, 3), int),
        rewards=np.ones((2, 3)),
    )
    table = read(tmp_path / "x.npz")
    assert table.num_rows == 6 and read_column(table, "new_obs")[2].tolist() == [9.0, 10.0, 11.0]
    assert "No column says how episodes end" in str(note_of(table))


def test_infos_of_imitation_are_refused_and_the_others_can_be_chosen(tmp_path: Path) -> None:
    infos = np.array([Bomb(tmp_path / "exploded")] * 5, object)
    np.savez(tmp_path / "x.npz", **trajectories("imitation"), infos=infos)
    with pytest.raises(
        UnsafeDataError, match=r"choose others by source\.columns; there are obs, acts, rews, terminal, indices"
    ):
        read(tmp_path / "x.npz")
    [reader] = open_source([str(tmp_path / "x.npz")], SourceConfig(columns=[*trajectories("imitation")]))
    assert sum(batch.num_rows for batch in reader.batches()) == 5
    assert not (tmp_path / "exploded").exists()
