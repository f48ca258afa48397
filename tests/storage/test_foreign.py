"""Step tables of other programs: RLlib's packed columns and tensors, its repeated rows, and what is refused."""

from __future__ import annotations

import base64
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import lz4.frame
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from offline_core.errors import CorruptFileError, DataError, SchemaError, UnsafeDataError
from offline_core.storage import foreign
from offline_core.storage.dataset import open_dataset
from offline_core.storage.foreign import canonical, step_table, unpack_column, unpack_value
from tests.storage.factories import Bomb


def packed(value: Any) -> str:
    """As RLlib's `pack` does, less cloudpickle, which pickles arrays as pickle does."""
    return base64.b64encode(lz4.frame.compress(pickle.dumps(value, protocol=5))).decode("ascii")


def unpacked(text: str) -> np.ndarray:
    """The trusting way."""
    return np.asarray(pickle.loads(lz4.frame.decompress(base64.b64decode(text))))


def columns_of(table: pa.Table) -> dict[str, np.ndarray]:
    arrays = {}
    for name in table.column_names:
        array = table[name].combine_chunks()
        is_tensor = isinstance(array.type, pa.FixedShapeTensorType)
        arrays[name] = array.to_numpy_ndarray() if is_tensor else array.to_numpy(zero_copy_only=False)
    return arrays


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


def keys(columns: dict[str, np.ndarray]) -> list[tuple[bytes | str, ...]]:
    """One hashable key a row, of the exact numbers."""
    names = sorted(columns)
    widened = {n: columns[n] if columns[n].dtype.kind == "U" else columns[n].astype(np.float64) for n in names}
    return [
        tuple(str(widened[n][row]) if widened[n].dtype.kind == "U" else widened[n][row].tobytes() for n in names)
        for row in range(len(widened[names[0]]))
    ]


@pytest.mark.parametrize(
    ("name", "steps", "duplicates", "episodes"),
    [("cartpole_table_packed", 3_798, 2_280, 10), ("pendulum_table", 4_000, 0, 20)],
)
def test_rllibs_tables(rllib_recordings: Path, name: str, steps: int, duplicates: int, episodes: int) -> None:
    """Every distinct step, as often as the write that has most of it, against a decoder of its own."""
    table, left_out = step_table(open_dataset(str(rllib_recordings / name)))
    assert (table.num_rows, left_out) == (steps, duplicates)
    got = columns_of(table)
    assert len(set(got["eps_id"])) == episodes
    of_folder: dict[str, Counter[tuple[bytes | str, ...]]] = {}
    first_seen: dict[tuple[bytes | str, ...], None] = {}
    for folder, columns in decode_independently(rllib_recordings / name):
        assert columns.keys() == got.keys()
        rows = keys(columns)
        of_folder.setdefault(folder, Counter()).update(rows)
        first_seen |= dict.fromkeys(rows)
    expected: Counter[tuple[bytes | str, ...]] = Counter()
    for counter in of_folder.values():
        expected |= counter
    assert Counter(keys({key: values.astype(str) if values.dtype == object else values for key, values in got.items()})) == (
        expected
    )
    assert list(first_seen) == keys({k: v.astype(str) if v.dtype == object else v for k, v in got.items()}), "in their order"


def test_types_of_rllibs_tables(rllib_recordings: Path) -> None:
    tables = {
        name: step_table(open_dataset(str(rllib_recordings / name)))[0] for name in ("cartpole_table_packed", "pendulum_table")
    }
    for name, width in (("cartpole_table_packed", 4), ("pendulum_table", 3)):
        schema = tables[name].schema
        assert schema.field("obs").type == schema.field("new_obs").type == pa.fixed_shape_tensor(pa.float32(), (width,))
        assert schema.field("action_dist_inputs").type == pa.fixed_shape_tensor(pa.float32(), (2,))
        assert not any(field.nullable for field in schema)
        assert "agent_id" not in schema.names, "it has no type, so it holds nothing"
    assert tables["cartpole_table_packed"].schema.field("actions").type == pa.int32()
    assert tables["pendulum_table"].schema.field("actions").type == pa.fixed_shape_tensor(pa.float32(), (1,))


# Rows that are there more than once.


def write(path: Path, **columns: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def steps_of(folder: Path) -> tuple[list[float], int]:
    table, left_out = step_table(open_dataset(str(folder)))
    return table["rewards"].to_pylist(), left_out


def test_a_step_taken_twice_is_no_duplicate(tmp_path: Path) -> None:
    """Within one write; the next write, which repeats it, holds it as often."""
    write(tmp_path / "run-1" / "a.parquet", rewards=[1.0, 1.0, 2.0])
    assert steps_of(tmp_path) == ([1.0, 1.0, 2.0], 0)
    write(tmp_path / "run-2" / "a.parquet", rewards=[1.0, 1.0, 2.0, 1.0])
    assert steps_of(tmp_path) == ([1.0, 1.0, 2.0, 1.0], 3)


def test_the_files_of_one_write_belong_together(tmp_path: Path) -> None:
    write(tmp_path / "run-1" / "a.parquet", rewards=[1.0, 2.0])
    write(tmp_path / "run-1" / "b.parquet", rewards=[1.0])
    assert steps_of(tmp_path) == ([1.0, 2.0, 1.0], 0)


def test_rows_differ_if_any_column_does(tmp_path: Path) -> None:
    for number, (eps_id, obs) in enumerate([("a", [0.0, 1.0]), ("b", [0.0, 1.0]), ("a", [1.0, 0.0]), ("a", [0.0, 1.0])]):
        write(tmp_path / f"run-{number}" / "x.parquet", eps_id=[eps_id], obs=pa.array([obs]), rewards=[5.0], text=["é" * 3])
    assert steps_of(tmp_path) == ([5.0, 5.0, 5.0], 1)


def test_nan_is_equal_to_nan(tmp_path: Path) -> None:
    write(tmp_path / "run-1" / "x.parquet", rewards=[float("nan")])
    write(tmp_path / "run-2" / "x.parquet", rewards=[float("nan"), 1.0])
    assert steps_of(tmp_path)[1] == 1


def test_a_table_without_rows(tmp_path: Path) -> None:
    write(tmp_path / "x.parquet", rewards=pa.array([], pa.float64()))
    assert steps_of(tmp_path) == ([], 0)


def test_files_with_other_columns(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", rewards=[1.0])
    write(tmp_path / "b.parquet", rewards=[1.0], more=[1])
    with pytest.raises(SchemaError, match=f"The files of {tmp_path} do not have the same columns"):
        step_table(open_dataset(str(tmp_path)))


# Columns as other programs write them.


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
@pytest.mark.parametrize(
    "values",
    [
        np.arange(12, dtype=np.float32).reshape(3, 2, 2),
        np.arange(3, dtype=np.uint8).reshape(3, 1),
        np.asfortranarray(np.arange(12.0).reshape(3, 2, 2))[:, ::-1],
        np.array([True, False, True]),
    ],
)
def test_packed_columns(kind: pa.DataType, values: np.ndarray) -> None:
    table = canonical(pa.table({"obs": pa.array([packed(value) for value in values], kind)}))
    got = columns_of(table)["obs"]
    assert got.dtype == values.dtype
    np.testing.assert_array_equal(got, values)


def test_text_stays_text() -> None:
    table = pa.table({"eps_id": ["BCJ", "b"], "note": pa.array(["x", "BCJNGG"], pa.large_string()), "none": pa.nulls(2)})
    assert canonical(table).to_pylist() == [{"eps_id": "BCJ", "note": "x"}, {"eps_id": "b", "note": "BCJNGG"}]


def test_lists_become_tensors() -> None:
    lists = {
        "list": pa.array([[1, 2], [3, 4]], pa.list_(pa.int16())),
        "nested": pa.array([[[1.0], [2.0]], [[3.0], [4.0]]]),
        "struct": pa.array([{"a": [1.0], "b": 1}, {"a": [2.0], "b": 2}]),
    }
    table = canonical(pa.table(lists))
    assert table.schema.field("list").type == pa.fixed_shape_tensor(pa.int16(), (2,))
    assert table.schema.field("nested").type == pa.fixed_shape_tensor(pa.float64(), (2, 1))
    assert table["struct"].combine_chunks().field("a").to_pylist() == [[1.0], [2.0]]


def test_rays_tensors_without_ray() -> None:
    """Their shape stands in the metadata of the field."""
    metadata = {"ARROW:extension:name": "ray.data.arrow_tensor_v2", "ARROW:extension:metadata": "[2, 2]"}
    array = pa.array([[1, 2, 3, 4], [5, 6, 7, 8]], pa.large_list(pa.float32()))
    schema = pa.schema([pa.field("obs", array.type, metadata=metadata)])
    table = canonical(pa.Table.from_arrays([array], schema=schema))
    np.testing.assert_array_equal(columns_of(table)["obs"], np.arange(1, 9, dtype=np.float32).reshape(2, 2, 2))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([1.0, None]), "'x' has 1 nulls among 2 rows"),
        (pa.array([[1.0], [1.0, 2.0]]), "'x' has lists of 1 to 2 values"),
        (pa.array([b"a", b"b"]), "'x' has type binary"),
        (pa.array([packed(np.zeros(2)), "text"]), "'x' mixes packed arrays with other text: 'text'"),
        (pa.array([packed(np.zeros(2)), None]), "'x' mixes packed arrays"),
        (pa.array([packed(np.zeros(2)), packed(np.zeros(3))]), "The steps of x differ in shape"),
        (pa.array([packed(np.zeros(2)), packed(np.zeros(2))[:-9]]), "A packed value"),
    ],
)
def test_columns_that_cannot_be_read_are_named(tmp_path: Path, column: pa.Array, message: str) -> None:
    write(tmp_path / "good.parquet", x=[1.0])
    write(tmp_path / "sub" / "bad.parquet", x=column)
    with pytest.raises(DataError, match=rf"{tmp_path}/(sub/bad)\.parquet: .*{message}"):
        step_table(open_dataset(str(tmp_path)))


def test_rays_pickled_columns_are_refused(tmp_path: Path) -> None:
    marker = tmp_path / "exploded"
    array = pa.array([pickle.dumps(Bomb(marker))], pa.large_binary())
    metadata = {"ARROW:extension:name": "ray.data.arrow_pickled_object", "ARROW:extension:metadata": ""}
    table = pa.Table.from_arrays([array], schema=pa.schema([pa.field("obs", array.type, metadata=metadata)]))
    pq.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(SchemaError, match=rf"{tmp_path}/x\.parquet: Column 'obs' has"):
        step_table(open_dataset(str(tmp_path)))
    assert not marker.exists()


# Packed values.


def test_a_packed_pickle_that_runs_code(tmp_path: Path) -> None:
    marker = tmp_path / "exploded"
    text = packed(Bomb(marker))
    assert text.startswith(foreign.PACKED)
    write(tmp_path / "x.parquet", obs=[packed(np.zeros(2)), text])
    with pytest.raises(UnsafeDataError, match=rf"{tmp_path}/x\.parquet: .*mkdir; only plain numpy arrays are read"):
        step_table(open_dataset(str(tmp_path)))
    assert not marker.exists()
    unpacked(text)
    assert marker.exists(), "or else this test would show nothing"


@pytest.mark.parametrize("value", [{"a": 1}, None, np.array([{}], object), [np.zeros(1), "text", None]])
def test_a_packed_value_that_is_no_array(value: Any) -> None:
    with pytest.raises(UnsafeDataError):
        unpack_value(packed(value))


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
    assert len(unpack_value(text)) == 100_000
    monkeypatch.setattr(foreign, "MAX_VALUE_BYTES", 10_000)
    with pytest.raises(UnsafeDataError, match="unpacks to more than 10,000 bytes; refused"):
        unpack_value(text)


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
        unpack_value(damaged[damage])
