"""Nested arrays ⇄ Arrow columns: ours come back bit by bit, those of other tools come in the right shape or not at all."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from offline_core.data.episodes import nested
from offline_core.data.episodes.arrow import from_arrow, read_column, to_arrow
from offline_core.errors import SchemaError, SpaceError, UnsafeDataError
from tests.cases import examples
from tests.data.episodes.strategies import any_spaces, values

# ---- Ours ------------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(120), suppress_health_check=[HealthCheck.too_slow])
@given(any_spaces(), st.integers(0, 5), st.integers(0, 2**32 - 1), st.integers(0, 5))
def test_every_array_comes_back_from_any_slice(space: gym.Space[Any], count: int, seed: int, start: int) -> None:
    tree = values(space, count, np.random.default_rng(seed), infinite=True)
    column = to_arrow(tree, "obs")
    assert len(column) == count
    again = from_arrow(column.slice(min(start, count)), "obs")
    assert nested.equal(again, nested.map_leaves(lambda array: array[start:], tree))
    for left, right in zip(nested.leaves(again), nested.leaves(tree), strict=True):
        assert left.dtype == right.dtype or left.dtype.kind == right.dtype.kind == "U"
        assert left.shape[1:] == right.shape[1:]


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow])
@given(any_spaces(), st.lists(st.integers(0, 3), max_size=4))
def test_chunks_are_read_as_one(space: gym.Space[Any], sizes: list[int]) -> None:
    trees = [values(space, size, np.random.default_rng(size)) for size in sizes]
    kind = to_arrow(values(space, 1, np.random.default_rng(0)), "obs").type
    again = from_arrow(pa.chunked_array([to_arrow(tree, "obs") for tree in trees], type=kind), "obs")
    for leaf in nested.leaves(again):
        assert len(leaf) == sum(sizes)
    if trees:
        assert nested.equal(again, nested.concatenate(trees))


def test_types_are_the_canonical_ones_without_nulls() -> None:
    struct = to_arrow({"a": np.zeros((2, 3, 4), np.uint8), "b": (np.zeros(2),)}, "obs")
    assert struct.type.field("a").type == pa.fixed_shape_tensor(pa.uint8(), [3, 4])
    assert struct.type.field("b").type == pa.struct([pa.field("_0", pa.float64(), nullable=False)])
    assert not struct.type.field("a").nullable


def test_numbers_are_read_and_written_without_a_copy() -> None:
    array = np.arange(12, dtype=np.float32).reshape(4, 3)
    column = to_arrow(array, "obs")
    assert np.shares_memory(from_arrow(column, "obs"), array)
    assert np.shares_memory(from_arrow(pa.chunked_array([column]), "obs"), array)


@pytest.mark.parametrize("order", ["F", "reversed", "big-endian"])
def test_memory_in_another_order_is_written_as_it_reads(order: str) -> None:
    array = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    stored = {"F": np.asfortranarray(array), "reversed": array[:, ::-1].copy()[:, ::-1], "big-endian": array.astype(">i4")}[
        order
    ]
    again = from_arrow(to_arrow(stored, "obs"), "obs")
    assert again.tolist() == array.tolist()
    assert again.dtype == np.int32


@pytest.mark.parametrize(
    ("tree", "named"),
    [
        (np.array([None, 1]), "dtype object"),
        (np.zeros(2, complex), "dtype complex128"),
        (np.zeros(2, np.longdouble), "dtype float128"),
        (np.zeros(2, "M8[s]"), "datetime64"),
        (np.array([b"ab"]), "dtype |S2"),
        (np.array([["a", "b"]]), "cannot be a column"),
        (np.zeros((2, 0)), "cannot be a column"),
        ({}, "empty dict or tuple"),
        ((), "empty dict or tuple"),
        ({"a": {"_0": np.zeros(1), "_1": np.zeros(1)}}, "stand for a tuple"),
    ],
)
def test_what_cannot_be_a_column_is_refused(tree: Any, named: str) -> None:
    with pytest.raises(SpaceError) as caught:
        to_arrow(tree, "the actions")
    assert named in str(caught.value)
    assert "the actions" in str(caught.value)


def test_keys_that_only_look_like_a_tuple_stay_keys() -> None:
    tree = {"_1": np.arange(2), "_2": np.arange(2, 4)}
    assert nested.equal(from_arrow(to_arrow(tree, "obs"), "obs"), tree)


# ---- Other tools' ----------------------------------------------------------------------------------------------------

ROWS = [[1.5, 2.5, 3.5], [4.5, 5.5, 6.5]]


@pytest.mark.parametrize(
    "kind",
    [pa.list_(pa.float32()), pa.large_list(pa.float32()), pa.list_(pa.float32(), 3), pa.list_(pa.float16())],
    ids=str,
)
def test_lists_are_read_as_arrays(kind: pa.DataType) -> None:
    column = pa.array([[0, 0, 0], *ROWS], kind)
    found = from_arrow(column.slice(1), "obs")
    assert found.tolist() == ROWS
    assert found.dtype == kind.value_type.to_pandas_dtype()
    assert from_arrow(column.slice(0, 0), "obs").shape[0] == 0


@pytest.mark.parametrize("inner", [pa.list_(pa.int16()), pa.list_(pa.int16(), 2)], ids=str)
@pytest.mark.parametrize("outer", [pa.list_, pa.large_list, lambda kind: pa.list_(kind, 3)])
def test_lists_of_lists_are_read_as_arrays(outer: Any, inner: pa.DataType) -> None:
    image = [[[1, 2], [3, 4], [5, 6]], [[7, 8], [9, 10], [11, 12]]]
    found = from_arrow(pa.array(image, outer(inner)), "obs")
    assert found.tolist() == image
    assert found.dtype == np.int16


def test_lists_of_booleans_and_text_are_read() -> None:
    assert from_arrow(pa.array([[True, False], [False, True]]), "obs").tolist() == [[True, False], [False, True]]
    assert from_arrow(pa.array([["a", "b"], ["c", "dd"]]), "obs").tolist() == [["a", "b"], ["c", "dd"]]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())], ids=str
)
def test_text_is_read(kind: pa.DataType) -> None:
    found = from_arrow(pa.array(["a", "", "äß"]).cast(kind), "obs")
    assert found.tolist() == ["a", "", "äß"]
    assert found.dtype.kind == "U"


def test_structs_of_lists_are_dicts_of_arrays() -> None:
    found = from_arrow(pa.array([{"x": [1, 2], "y": {"z": 3}}, {"x": [4, 5], "y": {"z": 6}}]), "obs")
    assert found["x"].tolist() == [[1, 2], [4, 5]]
    assert found["y"]["z"].tolist() == [3, 6]


def test_tensors_in_another_order_of_axes_are_read_in_their_own() -> None:
    array = np.arange(24).reshape(2, 3, 4).transpose(0, 2, 1)
    column = pa.FixedShapeTensorArray.from_numpy_ndarray(array)
    assert column.type.permutation is not None
    assert from_arrow(column, "obs").tolist() == array.tolist()


@pytest.mark.parametrize(
    ("column", "named"),
    [
        (pa.array([1.0, None]), "1 null among 2 rows"),
        (pa.array([[1, 2], None]), "1 null among 2 rows"),
        (pa.array([[1, 2], None], pa.list_(pa.int64(), 2)), "1 null among 2 rows"),
        (pa.array([[1, None]]), "nulls in 1 of 1 rows"),
        (pa.array([{"x": 1}, None]), "1 null among 2 rows"),
        (pa.array([{"x": 1}, {"x": None}]), "'obs/x' has 1 null "),
        (pa.nulls(2), "2 nulls"),
        (pa.array(["a", None]).dictionary_encode(), "1 null "),
        (
            pa.ExtensionArray.from_storage(
                pa.fixed_shape_tensor(pa.int8(), [2]), pa.array([[1, None]], pa.list_(pa.int8(), 2))
            ),
            "nulls in 1 of 1 rows",
        ),
        (pa.array([[1, 2], [3]]), "lists of 1 to 2 values"),
        (pa.array([[[1], [2]], [[3], [4, 5]]]), "lists of 1 to 2 values"),
        (pa.array([[{"x": 1}]]), "lists of structs"),
        (pa.array([b"ab"]), "type binary"),
        (pa.array([np.datetime64(0, "s")]), "type timestamp"),
    ],
    ids=str,
)
def test_what_is_no_array_is_refused_by_the_name_of_the_column(column: pa.Array, named: str) -> None:
    for array in (column, pa.chunked_array([column])):
        with pytest.raises(SchemaError) as caught:
            from_arrow(array, "obs")
        assert named in str(caught.value)
        assert "obs" in str(caught.value)


# ---- Ray's tensors ---------------------------------------------------------------------------------------------------


def ray_table(shape: bytes, name: bytes = b"ray.data.arrow_tensor_v2", kind: pa.DataType | None = None) -> pa.Table:
    """Two steps of six numbers as a Parquet file that Ray wrote gives them to a process that never imported Ray."""
    metadata = {b"ARROW:extension:name": name, b"ARROW:extension:metadata": shape}
    rows = pa.array(np.arange(12, dtype=np.float32).reshape(2, 6).tolist(), kind or pa.large_list(pa.float32()))
    return pa.Table.from_arrays([rows], schema=pa.schema([pa.field("obs", rows.type, metadata=metadata)]))


@pytest.mark.parametrize("shape", [(6,), (2, 3), (1, 3, 2)])
@pytest.mark.parametrize("version", [b"ray.data.arrow_tensor", b"ray.data.arrow_tensor_v2"])
@pytest.mark.parametrize("store", [lambda shape: json.dumps(shape).encode(), pickle.dumps], ids=["json", "pickle"])
def test_rays_tensors_have_their_shape_without_ray(shape: tuple[int, ...], version: bytes, store: Any) -> None:
    found = read_column(ray_table(store(shape), version), "obs")
    assert found.tolist() == np.arange(12).reshape(2, *shape).tolist()
    assert found.dtype == np.float32


def test_rays_tensors_within_structs_have_their_shape() -> None:
    table = ray_table(b"[2, 3]")
    struct = pa.StructArray.from_arrays([table["obs"].chunk(0)], fields=[table.schema.field("obs").with_name("image")])
    assert from_arrow(struct, "obs")["image"].shape == (2, 2, 3)


@pytest.mark.parametrize("shape", [b"[4]", b"[]", b"5", b'["a"]', b'{"a": 1}', b"[-1, -1]"])
def test_a_shape_that_does_not_fit_is_refused(shape: bytes) -> None:
    with pytest.raises(SchemaError, match="'obs'"):
        read_column(ray_table(shape), "obs")


def test_a_shape_that_is_a_program_is_not_run(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "ran",)

    with pytest.raises(UnsafeDataError):
        read_column(ray_table(pickle.dumps(Bomb())), "obs")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", [b"ray.data.arrow_variable_shaped_tensor", b"ray.data.arrow_pickled_object"])
def test_rays_other_types_are_refused_by_name(name: bytes) -> None:
    with pytest.raises(SchemaError, match=name.decode()):
        read_column(ray_table(b"2", name), "obs")


RAY_WRITES = """
import sys
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
import ray.data
from ray.data import extensions
from offline_core.data.episodes.arrow import read_column
pixels = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
table = pa.table({
    "image": extensions.ArrowTensorArray.from_numpy(pixels),
    "flat": extensions.ArrowTensorArray.from_numpy(pixels[:, 0].astype(np.float32)),
    "ragged": extensions.ArrowVariableShapedTensorArray.from_numpy([pixels[0], pixels[1][:1]]),
})
pq.write_table(table, sys.argv[1])
print([read_column(table, name).tolist() == expected.tolist()
       for name, expected in (("image", pixels), ("flat", pixels[:, 0]))])
try:
    read_column(table, "ragged")
except Exception as error:
    print(type(error).__name__)
"""


def test_what_ray_writes_is_read_with_and_without_ray(tmp_path: Path) -> None:
    path = tmp_path / "ray.parquet"
    run = subprocess.run([sys.executable, "-c", RAY_WRITES, path], capture_output=True, text=True, check=True)
    assert run.stdout.split("\n")[:2] == ["[True, True]", "SchemaError"]
    table = pq.read_table(path)
    assert read_column(table, "image").tolist() == np.arange(24).reshape(2, 3, 4).tolist()
    assert read_column(table, "flat").tolist() == [[0, 1, 2, 3], [12, 13, 14, 15]]
    with pytest.raises(SchemaError, match="variable"):
        read_column(table, "ragged")
