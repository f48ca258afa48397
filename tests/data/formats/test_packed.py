"""Step tables of other programs: RLlib's packed columns and tensors, its repeated rows, and what is refused."""

from __future__ import annotations

import base64
import pickle
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lz4.frame
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.formats import packed as foreign
from offline_core.data.formats.packed import read_foreign_column, unpack_column, unpack_values
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.importing import import_data
from offline_core.errors import CorruptFileError, DataError, SchemaError, UnsafeDataError
from offline_core.runtime.config import EnvironmentSpec
from tests.data.datasets.factories import Bomb


def packed(value: Any) -> str:
    """As RLlib's `pack` does, less cloudpickle, which pickles arrays as pickle does."""
    return base64.b64encode(lz4.frame.compress(pickle.dumps(value, protocol=5))).decode("ascii")


def unpacked(text: str) -> np.ndarray:
    """The trusting way."""
    return np.asarray(pickle.loads(lz4.frame.decompress(base64.b64decode(text))))


def steps_of(uri: str) -> dict[str, np.ndarray]:
    """Every column of a dataset of ours in the table format, by plain pyarrow."""
    files = [str(location) for location in open_dataset(uri).paths]
    whole = pa.concat_tables([pq.read_table(file) for file in files])
    found = {}
    for name in whole.column_names:
        array = whole[name].combine_chunks()
        is_tensor = isinstance(array.type, pa.FixedShapeTensorType)
        found[name] = array.to_numpy_ndarray() if is_tensor else array.to_numpy(zero_copy_only=False)
    return found


def decode_independently(folder: Path) -> list[tuple[str, dict[str, np.ndarray]]]:
    """(folder of the file, its columns) of every file, with nothing of ours."""
    decoded = []
    for path in sorted(folder.rglob("*.parquet")):
        table = pq.read_table(path)
        columns = {}
        for name in table.column_names:
            if pa.types.is_null(table.schema.field(name).type):
                continue
            values = table[name].to_pylist()
            if name in ("obs", "new_obs") and isinstance(values[0], str):
                values = [unpacked(value) for value in values]
            columns[name] = np.array(values)
        decoded.append((str(path.parent), columns))
    return decoded


def keys(columns: dict[str, np.ndarray], names: Sequence[str]) -> list[tuple[bytes | str, ...]]:
    """One hashable key a row, of the exact numbers."""
    texts = {name for name in names if columns[name].dtype.kind in "UO"}
    widened = {name: columns[name] if name in texts else columns[name].astype(np.float64) for name in names}
    count = len(columns[names[0]])
    return [tuple(str(widened[n][i]) if n in texts else widened[n][i].tobytes() for n in names) for i in range(count)]


@pytest.mark.parametrize(
    ("name", "steps", "duplicates", "episodes"),
    [("cartpole_table_packed", 3_798, 2_280, 10), ("pendulum_table", 4_000, 0, 20)],
)
def test_rllibs_tables(rllib_recordings: Path, tmp_path: Path, name: str, steps: int, duplicates: int, episodes: int) -> None:
    """Every distinct step, as often as the write that has most of it, against a decoder of its own.

    Pendulum's actions are scaled to its bounds; tests/acceptance/test_10_preprocessing.py replays them.
    """
    environment = EnvironmentSpec(id="Pendulum-v1") if name == "pendulum_table" else None
    result = import_data(
        ImportConfig(format="table", environment=environment), source=str(rllib_recordings / name), output=str(tmp_path)
    )
    counts = result.counts
    assert (counts.steps, counts.duplicates, counts.episodes) == (steps, duplicates, episodes)
    decoded = decode_independently(rllib_recordings / name)
    names = sorted(set(decoded[0][1]) - {"infos"})
    assert {"eps_id", "obs", "new_obs", "actions", "rewards", "terminateds", "truncateds", "action_logp"} <= set(names)
    names = names if environment is None else [name for name in names if not name.startswith("action")]
    of_folder: dict[str, Counter[tuple[bytes | str, ...]]] = {}
    for folder, columns in decoded:
        of_folder.setdefault(folder, Counter()).update(keys(columns, names))
    expected: Counter[tuple[bytes | str, ...]] = Counter()
    for counter in of_folder.values():
        expected |= counter
    got = steps_of(result.dataset.uri)
    assert Counter(keys(got, names)) == expected
    types = {column: (got[column].dtype, got[column].shape[1:]) for column in ("obs", "actions")}
    assert (
        types
        == {
            "cartpole_table_packed": {"obs": (np.float32, (4,)), "actions": (np.int32, ())},
            "pendulum_table": {"obs": (np.float32, (3,)), "actions": (np.float32, (1,))},
        }[name]
    )


# Rows that are there more than once: RLlib repeats all earlier ones with every write, to a folder of its own.

STAY = {"eps_id": "a", "obs": [0.0], "new_obs": [0.0], "actions": 1, "rewards": 1.0, "dones": False}
LEAVE = STAY | {"new_obs": [1.0], "dones": True}


def write(path: Path, *rows: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows)), path)


def counted(folder: Path) -> tuple[int, int]:
    """(steps, duplicates) of an import."""
    counts = import_data(ImportConfig(), source=str(folder / "in"), output=str(folder / "out")).counts
    return counts.steps, counts.duplicates


def test_a_step_taken_twice_is_no_duplicate(tmp_path: Path) -> None:
    """Within one write; the next write, which repeats it, holds it as often."""
    write(tmp_path / "in" / "run-1" / "a.parquet", STAY, STAY, LEAVE)
    assert counted(tmp_path) == (3, 0)
    write(tmp_path / "in" / "run-2" / "a.parquet", STAY, STAY, LEAVE)
    assert counted(tmp_path) == (3, 3)


def test_the_files_of_one_write_belong_together(tmp_path: Path) -> None:
    write(tmp_path / "in" / "run-1" / "a.parquet", STAY)
    write(tmp_path / "in" / "run-1" / "b.parquet", STAY, LEAVE)
    assert counted(tmp_path) == (3, 0)


@pytest.mark.parametrize("change", [{"eps_id": "b"}, {"actions": 2}, {"rewards": 2.0}])
def test_rows_differ_if_any_column_does(tmp_path: Path, change: dict[str, Any]) -> None:
    write(tmp_path / "in" / "run-1" / "a.parquet", STAY, LEAVE)
    write(tmp_path / "in" / "run-2" / "a.parquet", STAY | change, LEAVE | ({"eps_id": "b"} if "eps_id" in change else {}))
    assert counted(tmp_path) == ((4, 0) if "eps_id" in change else (3, 1))


# Columns as other programs write them.


def column_of(array: pa.Array, **metadata: str) -> Any:
    """A column x, as `read_foreign_column` reads it."""
    schema = pa.schema([pa.field("x", array.type, metadata=metadata or None)])
    return read_foreign_column(pa.Table.from_arrays([array], schema=schema), "x")


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
@pytest.mark.parametrize(
    "values",
    [
        np.arange(12, dtype=np.float32).reshape(3, 2, 2),
        np.arange(3, dtype=np.uint8).reshape(3, 1),
        np.asfortranarray(np.arange(12.0).reshape(3, 2, 2))[:, ::-1],
        np.array([True, False, True]),
        np.random.default_rng(0).integers(0, 256, (2, 210, 160, 3), np.uint8),  # each above 64 KiB
    ],
)
def test_packed_columns(kind: pa.DataType, values: np.ndarray) -> None:
    """lz4 marks frames of several blocks otherwise."""
    np.testing.assert_array_equal(column_of(pa.array([packed(value) for value in values], kind)), values, strict=True)


def test_text_stays_text() -> None:
    assert column_of(pa.array(["BCJ", "b"])).tolist() == ["BCJ", "b"]
    assert column_of(pa.array(["x", "BCJNGG"], pa.large_string())).tolist() == ["x", "BCJNGG"]


def test_rays_tensors_without_ray() -> None:
    """Their shape stands in the metadata of the field."""
    array = pa.array([[1, 2, 3, 4], [5, 6, 7, 8]], pa.large_list(pa.float32()))
    metadata = {"ARROW:extension:name": "ray.data.arrow_tensor_v2", "ARROW:extension:metadata": "[2, 2]"}
    np.testing.assert_array_equal(column_of(array, **metadata), np.arange(1, 9, dtype=np.float32).reshape(2, 2, 2))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([1.0, None]), "'x' has 1 null among 2 rows"),
        (pa.array([[1.0], [1.0, 2.0]]), "'x' has lists of 1 to 2 values"),
        (pa.array([b"a", b"b"]), "'x' has type binary"),
        (pa.array([packed(np.zeros(2)), "text"]), "'x' mixes packed arrays with other text: 'text'"),
        (pa.array([packed(np.zeros(2)), None]), "'x' mixes packed arrays"),
        (pa.array([packed(np.zeros(2)), packed(np.zeros(3))]), "The steps of x differ in shape"),
        (pa.array([packed(np.zeros(2)), packed(np.zeros(2))[:-9]]), "A packed value"),
    ],
)
def test_columns_that_cannot_be_read_are_named(column: pa.Array, message: str) -> None:
    with pytest.raises(DataError, match=message):
        column_of(column)


def test_objects_that_ray_pickled_are_refused(tmp_path: Path) -> None:
    marker = tmp_path / "exploded"
    metadata = {"ARROW:extension:name": "ray.data.arrow_pickled_object", "ARROW:extension:metadata": ""}
    for value in (Bomb(marker), np.float32([1, 2])):
        with pytest.raises(SchemaError, match=r"'x' has Ray's type ray\.data\.arrow_pickled_object"):
            column_of(pa.array([pickle.dumps(value)], pa.large_binary()), **metadata)
    assert not marker.exists()


# Packed values.


def test_a_packed_pickle_that_runs_code(tmp_path: Path) -> None:
    marker = tmp_path / "exploded"
    text = packed(Bomb(marker))
    assert text.startswith(foreign.PACKED)
    with pytest.raises(UnsafeDataError, match=r"mkdir; only plain numpy arrays are read"):
        column_of(pa.array([packed(np.zeros(2)), text]))
    assert not marker.exists()
    unpacked(text)
    assert marker.exists(), "or else this test would show nothing"


@pytest.mark.parametrize("value", [{"a": 1}, None, np.array([{}], object), [np.zeros(1), "text", None]])
def test_a_packed_value_that_is_no_array(value: Any) -> None:
    with pytest.raises(UnsafeDataError):
        unpack_values([packed(value)], "x")


def test_a_packed_column() -> None:
    """Of one space, or of a composite one, as a dict or tuple of what belongs to each part."""
    column = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal(unpack_column(packed(column)), column)
    tree = unpack_column(packed({"a": column, "b": (column, column[:, 0])}))
    np.testing.assert_array_equal(tree["a"], column)
    np.testing.assert_array_equal(tree["b"][1], [0, 2, 4])
    with pytest.raises(UnsafeDataError):
        unpack_column(packed({"a": {1, 2}}))


def test_a_packed_value_that_unpacks_to_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    text = packed(np.zeros(100_000))
    assert unpack_values([text], "x").shape == (1, 100_000)
    monkeypatch.setattr(foreign, "MAX_VALUE_BYTES", 10_000)
    with pytest.raises(UnsafeDataError, match="unpacks to more than 10,000 bytes; refused"):
        unpack_values([text], "x")


@pytest.mark.parametrize("damage", ["base64", "lz4", "cut", "characters"])
def test_a_damaged_packed_value(damage: str) -> None:
    text = packed(np.random.default_rng(0).standard_normal(100))
    raw = base64.b64decode(text)
    damaged = {
        "base64": text[:-1],
        "lz4": base64.b64encode(raw[:5] + bytes(3) + raw[8:]).decode(),
        "cut": base64.b64encode(raw[:-30]).decode(),
        "characters": text[:30] + "\n*é" + text[30:],
    }
    with pytest.raises(CorruptFileError, match=r"A packed value (cannot be unpacked|is cut off)"):
        unpack_values([damaged[damage]], "x")
