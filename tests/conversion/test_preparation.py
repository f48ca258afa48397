"""Rows of a source become rows of ours; every row that cannot is named, and the others go through."""

from __future__ import annotations

import base64
import datetime
import json
import pickle
import re
import time
from pathlib import Path
from typing import Any

import lz4.frame
import msgpack
import numpy as np
import pyarrow as pa
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from offline_core.config import parse
from offline_core.conversion import preparation
from offline_core.conversion.config import ImportConfig
from offline_core.conversion.preparation import Preparation
from offline_core.conversion.unreadable import Unreadable
from offline_core.episodes import space_to_json
from offline_core.episodes.arrow import read_column
from offline_core.errors import (
    ConfigError,
    CorruptFileError,
    DataError,
    NonFiniteError,
    SchemaError,
    SpaceError,
    UnsafeDataError,
)
from offline_core.storage.dataset import open_dataset
from offline_core.storage.reader import episodes
from tests.storage.factories import Bomb
from tests.storage.sources.factories import (
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


def table(count: int = 4, **changes: Any) -> pa.Table:
    """Rows in our columns; row i has observation [i, i]."""
    columns: dict[str, Any] = {
        "obs": [[float(i), float(i)] for i in range(count)],
        "actions": list(range(count)),
        "rewards": [i / 2 for i in range(count)],
        "dones": [False] * count,
    }
    return pa.table({name: values for name, values in (columns | changes).items() if values is not None})


def prepare(rows: pa.Table, prepared: Preparation | None = None, **fields: Any) -> tuple[pa.Table | None, list[Unreadable]]:
    prepared = Preparation(**{"mapping": {}} | fields) if prepared is None else prepared
    return prepared(rows, file=3, first_row=100, uri="there.parquet")


def column(rows: pa.Table, name: str, **fields: Any) -> Any:
    """What becomes of a column of rows that are all good."""
    good, bad = prepare(rows, **fields)
    assert bad == []
    assert good is not None
    return read_column(good, name) if name != "infos" else [cell and msgpack.unpackb(cell) for cell in good[name].to_pylist()]


def reason(rows: pa.Table, **fields: Any) -> DataError:
    """Why no row is good."""
    good, bad = prepare(rows, **fields)
    assert good is None
    assert sum(each.rows for each in bad) == rows.num_rows
    assert isinstance(bad[0].error, DataError)
    return bad[0].error


def packed(value: Any) -> str:
    """As RLlib packs observations."""
    return base64.b64encode(lz4.frame.compress(pickle.dumps(value, protocol=5))).decode("ascii")


def with_metadata(array: pa.Array, name: str, shape: str = "") -> pa.Table:
    """Rows whose observations have one of Ray's types, as a process without Ray sees it."""
    metadata = {"ARROW:extension:name": name, "ARROW:extension:metadata": shape}
    rest = table(len(array), obs=None)
    return rest.append_column(pa.field("obs", array.type, metadata=metadata), array)


# Rows.


def test_rows_know_where_they_come_from() -> None:
    good, bad = prepare(table(3))
    assert bad == []
    assert good is not None
    assert good["_source_file"].to_pylist() == [3, 3, 3]
    assert good["_source_row"].to_pylist() == [100, 101, 102]
    assert good.column_names == ["obs", "actions", "rewards", "terminateds", "infos", "_source_file", "_source_row"]
    assert [field.name for field in good.schema if field.nullable] == ["infos", "_source_file", "_source_row"]


def test_bad_rows_are_named_and_the_others_kept() -> None:
    rows = table(1000)
    wrong = [0, 17, 18, 500, 999]
    rewards = [np.nan if i in wrong else i / 2 for i in range(1000)]
    good, bad = prepare(rows.set_column(2, "rewards", pa.array(rewards)))
    assert [(each.uri, each.row, each.rows) for each in bad] == [("there.parquet", 100 + i, 1) for i in wrong]
    assert {str(each.error) for each in bad} == {"Column 'rewards' is NaN or infinite."}
    assert good is not None
    assert good["_source_row"].to_pylist() == [100 + i for i in range(1000) if i not in wrong]
    np.testing.assert_array_equal(read_column(good, "obs")[:, 0], [i for i in range(1000) if i not in wrong])


def test_rows_are_numbered_as_their_file_says() -> None:
    """A filter leaves gaps."""
    rows = table(4, rewards=[0.0, None, 0.0, 0.0]).append_column("_source_row", pa.array([7, 20, 21, 90], pa.uint32()))
    good, bad = prepare(rows)
    assert [each.row for each in bad] == [20]
    assert good is not None
    assert good["_source_row"].to_pylist() == [7, 21, 90]


@pytest.mark.parametrize("first", [0, 5, 9])
def test_most_rows_say_what_rows_are_like(first: int) -> None:
    """And not the first one: a single odd row in front would make all the others odd."""
    obs = [[1.0, 2.0]] * 10
    obs[first] = [1.0, 2.0, 3.0]
    good, bad = prepare(table(10, obs=obs))
    assert [each.row for each in bad] == [100 + first]
    assert "shape (3,) where earlier rows have (2,)" in str(bad[0].error)
    assert good is not None
    assert good.num_rows == 9


@given(st.lists(st.sampled_from(["good", "nan", "null", "ragged", "flag"]), min_size=1, max_size=300), st.booleans())
@settings(max_examples=40, deadline=None)
def test_each_row_is_kept_or_named(kinds: list[str], has_template: bool) -> None:
    prepared = Preparation({})
    if has_template:
        prepare(table(1), prepared)
    rows = table(
        len(kinds),
        obs=[[0.0, None] if kind == "null" else [0.0] * (3 if kind == "ragged" else 2) for kind in kinds],
        rewards=[np.nan if kind == "nan" else 1.0 for kind in kinds],
        dones=[2 if kind == "flag" else 0 for kind in kinds],
    )
    good, bad = prepare(rows, prepared)
    kept = [] if good is None else good["_source_row"].to_pylist()
    assert sorted([*kept, *(each.row for each in bad)]) == list(range(100, 100 + len(kinds)))
    if has_template or "ragged" not in kinds:  # without, most rows may be of three numbers
        assert kept == [100 + row for row, kind in enumerate(kinds) if kind == "good"]


def test_a_large_table_without_a_good_row_does_not_take_forever() -> None:
    count = 200_000
    rows = table(count, rewards=np.full(count, np.nan))
    start = time.monotonic()
    good, bad = prepare(rows)
    assert time.monotonic() - start < 5
    assert good is None
    assert [each.row for each in bad] == list(range(100, 100 + count))


def test_in_a_large_table_the_bad_part_is_found() -> None:
    count = 50_000
    rewards = np.where(np.arange(count) < 30_000, np.nan, 1.0)
    rewards[29_990] = 2.0  # one good row among bad ones, near the border
    good, bad = prepare(table(count, rewards=rewards))
    assert good is not None
    assert len(bad) + good.num_rows == count
    assert good["_source_row"].to_pylist() == [100 + 29_990, *range(30_100, 50_100)]


def test_the_search_is_thorough_in_small_tables() -> None:
    """One good row among as many as are searched."""
    count = preparation.SEARCHED_ROWS
    rewards = np.full(count, np.nan)
    rewards[1234] = 1.0
    good, bad = prepare(table(count, rewards=rewards))
    assert good is not None
    assert good["_source_row"].to_pylist() == [1334]
    assert len(bad) == count - 1


def test_no_rows() -> None:
    assert prepare(table(4).slice(0, 0)) == (None, [])


# Columns.


def test_missing_columns_are_named_once_for_all_rows() -> None:
    good, bad = prepare(table(4, actions=None, rewards=None))
    assert good is None
    assert [(each.row, each.rows) for each in bad] == [(None, 4)]
    assert "no column actions, rewards and none is mapped to it; there are obs, terminateds" in str(bad[0].error)


def test_columns_have_to_be_the_same_in_all_tables() -> None:
    prepared = Preparation({})
    prepare(table(2, logp=[0.5, 0.5]), prepared)
    good, [bad] = prepare(table(2, other=[1, 1]), prepared)
    assert good is None
    assert "not those of earlier rows: no logp; also other. Choose the common ones by source.columns" in str(bad.error)


def test_infos_may_come_and_go() -> None:
    prepared = Preparation({})
    parts = [
        prepare(rows, prepared)
        for rows in (table(1), table(1, infos=[{"a": 1}]), table(1, infos=pa.nulls(1)), table(1, custom_data=[{"b": 1}]))
    ]
    assert [bad for _, bad in parts] == [[], [], [], []]
    assert len({str(good.schema) for good, _ in parts[:3] if good is not None}) == 1


def test_columns_without_a_type_hold_nothing() -> None:
    good, bad = prepare(table(2, agent_id=pa.nulls(2)))
    assert bad == []
    assert good is not None
    assert "agent_id" not in good.column_names
    assert "'rewards' has 1 nulls among 1 rows" in str(reason(table(2, rewards=pa.nulls(2))))


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ([0.5], [1]),
        (pa.array([0.5], pa.float32()), [3]),
        ([1], pa.array([1], pa.int8())),
        (pa.array([1], pa.int32()), pa.array([1], pa.int64())),
        (["a"], ["longer"]),
    ],
)
def test_types_that_fit_earlier_ones(before: Any, now: Any) -> None:
    prepared = Preparation({})
    first, _ = prepare(table(1, extra=before), prepared)
    second, bad = prepare(table(1, extra=now), prepared)
    assert bad == []
    assert first is not None
    assert second is not None
    assert first.schema == second.schema
    assert second["extra"].to_pylist() == pa.array(now).to_pylist()


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ([1], [0.5]),
        ([1], [1.0]),
        (pa.array([1], pa.int8()), [1000]),
        (pa.array([0.5], pa.float32()), [2**24 + 1]),
        (pa.array([0.5], pa.float32()), [0.1]),
        ([1], ["a"]),
        ([{"a": 1}], [{"b": 1}]),
    ],
)
def test_types_that_do_not_fit_earlier_ones(before: Any, now: Any) -> None:
    prepared = Preparation({})
    prepare(table(1, extra=before), prepared)
    good, [bad] = prepare(table(1, extra=now), prepared)
    assert good is None
    assert bad.row == 100
    assert isinstance(bad.error, SchemaError)
    assert "where earlier rows have" in str(bad.error)


def test_declared_spaces_settle_types_that_differ() -> None:
    prepared = Preparation({}, (spaces.Box(0, 9, (2,), np.float32), spaces.Discrete(9)))
    parts = [
        prepare(table(2, obs=obs, actions=actions), prepared)
        for obs, actions in (
            ([[1, 2], [3, 4]], [1.0, 2.0]),
            ([[0.5, 2.0], [3.0, 4.0]], [[1], [2]]),
        )
    ]
    assert [bad for _, bad in parts] == [[], []]
    assert [part["actions"].to_pylist() for part, _ in parts if part is not None] == [[1, 2], [1, 2]]
    assert all(part.schema.field("obs").type == pa.fixed_shape_tensor(pa.float32(), (2,)) for part, _ in parts if part)


def test_rewards_are_float64() -> None:
    """So that files may differ in what they keep them as."""
    prepared = Preparation({})
    for rewards in ([1], [0.5], pa.array([0.1], pa.float32()), [True], [[2.0]]):
        good, bad = prepare(table(1, rewards=rewards), prepared)
        assert bad == []
        assert good is not None
        assert good.schema.field("rewards").type == pa.float64()


# What values have to be.


@pytest.mark.parametrize(
    ("name", "values", "kind", "message"),
    [
        ("obs", [[1.0, np.nan]], NonFiniteError, "'obs' is NaN"),
        ("obs", [{"a": [1.0], "b": np.nan}], NonFiniteError, "'obs/b' is NaN"),
        ("new_obs", [[1.0, np.nan]], NonFiniteError, "'new_obs' is NaN"),
        ("actions", [np.inf], NonFiniteError, "'actions' is NaN or infinite"),
        ("rewards", [-np.inf], NonFiniteError, "'rewards' is NaN or infinite"),
        ("rewards", [[1.0, 2.0]], SchemaError, r"float64 of shape \(2,\) a step; it has to be one number"),
        ("rewards", ["much"], SchemaError, "'rewards' has text that is no number: .*'much'"),
        ("actions", ["left"], SchemaError, "'actions' has text that is no number: .*'left'"),
        ("t", [np.nan], NonFiniteError, "'t' is NaN"),
        ("t", ["noon"], SchemaError, "'t' has text that is no number: .*'noon'"),
        ("t", ["2024-13-01"], SchemaError, "'t' has text that is no time: .*'2024-13-01'"),
        ("t", pa.array([1], pa.time32("s")), SchemaError, "'t' has type time32.*neither a timestamp nor a date"),
        ("t", pa.array([None], pa.timestamp("ms")), SchemaError, "'t' has 1 nulls"),
        ("dones", [2], SchemaError, "'terminateds' holds 2; it has to be true or false"),
        ("dones", ["maybe"], SchemaError, "'terminateds' says 'maybe'"),
        ("truncateds", [0.5], SchemaError, "'truncateds' holds 0.5"),
        ("truncateds", pa.array([None], pa.bool_()), SchemaError, "'truncateds' has 1 nulls"),
        ("eps_id", pa.array([None], pa.string()), SchemaError, "'eps_id' is null"),
        ("eps_id", [[1]], SchemaError, "'eps_id' has type list.*cannot be an id"),
        ("infos", ["{"], SchemaError, "'infos' holds text that is no JSON"),
        ("infos", ["[1]"], SchemaError, "'infos' has type string; it has to hold structs"),
        ("infos", [[1]], SchemaError, "'infos' has type list"),
        ("infos", [b"\xc1"], CorruptFileError, "not a stored episode"),
        ("infos", [b"\x01"], SchemaError, "'infos' has type binary"),
        ("obs", [datetime.date(2024, 1, 1)], SchemaError, "'obs' has type date32"),
        ("obs", [[None, 1.0]], SchemaError, "1 nulls"),
    ],
)
def test_values_that_cannot_be(name: str, values: Any, kind: type[DataError], message: str) -> None:
    error = reason(table(1, **{name: values}))
    assert type(error) is kind
    assert re.search(message, str(error)), error


def test_observations_may_be_infinite() -> None:
    assert column(table(1, obs=[[np.inf, 1.0]]), "obs").tolist() == [[np.inf, 1.0]]


@pytest.mark.parametrize(
    "values",
    [
        [True, False],
        [1, 0],
        [1.0, 0.0],
        ["true", "False"],
        ["1", "0"],
        [[True], [False]],
        pa.array(["TRUE", "false"]).dictionary_encode(),
    ],
)
def test_flags(values: Any) -> None:
    assert column(table(2, dones=values), "terminateds").tolist() == [True, False]
    assert column(table(2, truncateds=values), "truncateds").tolist() == [True, False]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([7, 8], ["7", "8"]),
        (["a", "ü"], ["a", "ü"]),
        (pa.array(["a", "b"]).dictionary_encode(), ["a", "b"]),
        (pa.array(["a", "b"], pa.large_string()), ["a", "b"]),
        (pa.array(["a", "b"], pa.string_view()), ["a", "b"]),
        (pa.array([b"a", b"b"]), ["a", "b"]),
    ],
)
def test_ids(values: Any, expected: list[str]) -> None:
    assert column(table(2, eps_id=values), "eps_id").tolist() == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([3, 4], pa.uint8()), np.array([3, 4])),
        ([0.25, 0.5], np.array([0.25, 0.5])),
        (["3", " 4"], np.array([3, 4])),
        (pa.array([1, 2], pa.timestamp("ms")), np.array([1e3, 2e3])),
        (pa.array([1_500, 2_500], pa.timestamp("ns", "UTC")), np.array([1.0, 2.0])),
        ([datetime.date(1970, 1, 1), datetime.date(1970, 1, 2)], np.array([0.0, 86_400e6])),
        (["1970-01-01", "1970-01-02"], np.array([0.0, 86_400e6])),
        (["1970-01-01 00:00:01", "1970-01-01T00:00:01.5"], np.array([1e6, 1.5e6])),
        (["1970-01-01T01:00:00+01:00", "1970-01-01T00:00:00.25Z"], np.array([0.0, 0.25e6])),
    ],
)
def test_times(values: Any, expected: np.ndarray) -> None:
    found = column(table(2, t=values), "t")
    assert found.dtype == expected.dtype, "only whole numbers can number steps"
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "values",
    [
        [{"a": 1, "b": None}, {"a": None, "b": None}],
        pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())),
        ['{"a": 1}', "{}"],
        ['{"a": 1}', None],
        [msgpack.packb({"a": 1}), msgpack.packb({})],
        pa.array([msgpack.packb({"a": 1}), None], pa.large_binary()),
        pa.array([msgpack.packb({"a": 1}), None], pa.binary_view()),
        [{"a": 1}, None],
    ],
)
def test_infos(values: Any) -> None:
    first, second = column(table(2, infos=values), "infos")
    assert first == {"a": 1}
    assert second in (None, {})


def test_infos_that_are_all_empty() -> None:
    for values in (pa.array([{}, {}], pa.struct([])), pa.nulls(2), ["{}", "null"]):
        assert column(table(2, infos=values), "infos") == [None, None]


def test_infos_of_many_kinds() -> None:
    infos = [{"a": [1, 2.5], "b": {"c": "ü", "d": True}}, {"a": [], "b": {"c": "", "d": False}}]
    assert column(table(2, infos=infos), "infos") == infos
    assert column(table(2, infos=[json.dumps(info) for info in infos]), "infos") == infos


# Numbers in columns of text, as a single wrong cell makes them in CSV.


def test_text_is_parsed_where_numbers_have_to_be() -> None:
    rows = pa.table(
        {"x": ["1.5", "oops", "2", " 3e0"], "y": [1, 2, 3, 4], "a": ["0", "1", "1", "2"], "r": ["1", "2", "nan", "3"]}
    )
    good, bad = prepare(rows, mapping={"obs": ["x", "y"], "actions": "a", "rewards": "r"})
    assert [(each.row, str(each.error)) for each in bad] == [
        (101, "Column 'x' has text that is no number: Failed to parse string: 'oops' as a scalar of type double."),
        (102, "Column 'r' has text that is no number: Failed to parse string: 'nan' as a scalar of type int64."),
    ]
    assert good is not None
    np.testing.assert_array_equal(read_column(good, "obs"), [[1.5, 1], [3, 4]])
    assert good["actions"].to_pylist() == [0, 2]
    assert good.schema.field("actions").type == pa.int64()


def test_text_stays_text_where_nothing_says_otherwise() -> None:
    rows = table(2, obs=["1", "look"], note=["7", "8"])
    assert column(rows, "obs").tolist() == ["1", "look"]
    assert column(rows, "note").tolist() == ["7", "8"]
    assert column(table(2, obs=["1", "2"]), "obs", spaces=(spaces.Discrete(3), None)).tolist() == [1, 2]
    assert column(table(2, actions=["1", "2"]), "actions", spaces=(None, spaces.Text(3))).tolist() == ["1", "2"]


# Observations of any space.


def test_images() -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 4, 5, 3), np.uint8)
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(images)
    lists = pa.array([image.reshape(-1).tolist() for image in images], pa.list_(pa.uint8()))
    ray = with_metadata(lists, "ray.data.arrow_tensor_v2", "[4, 5, 3]")
    deep = table(3, obs=pa.array(images.tolist(), pa.list_(pa.list_(pa.list_(pa.uint8())))))
    space = spaces.Box(0, 255, (4, 5, 3), np.uint8)
    declared = (space, None)
    found = [
        column(table(3, obs=tensors), "obs"),
        column(ray, "obs"),
        column(deep, "obs"),
        column(table(3, obs=lists), "obs", spaces=declared),
        column(table(3, obs=[image.reshape(-1).tolist() for image in images]), "obs", spaces=declared),
        column(table(3, obs=[packed(image) for image in images]), "obs"),
    ]
    for values in found:
        assert values.dtype == np.uint8
        np.testing.assert_array_equal(values, images)


def test_bad_rows_among_tensors() -> None:
    """Slices of tensors are read from where they start."""
    images = np.random.default_rng(0).integers(0, 256, (9, 2, 3), np.uint8)
    rewards = [0.0, np.nan, 0.0, 0.0, np.nan, 0.0, 0.0, 0.0, np.nan]
    good, bad = prepare(table(9, obs=pa.FixedShapeTensorArray.from_numpy_ndarray(images), rewards=rewards))
    assert [each.row for each in bad] == [101, 104, 108]
    np.testing.assert_array_equal(read_column(good, "obs"), images[[0, 2, 3, 5, 6, 7]])


@pytest.mark.parametrize(
    ("space", "values", "expected"),
    [
        (spaces.Discrete(5), [3.0, 4.0], np.array([3, 4])),
        (spaces.Discrete(5), [[3], [4]], np.array([3, 4])),
        (spaces.Box(0, 9, (1,), np.float32), [3, 4], np.array([[3], [4]], np.float32)),
        (spaces.Box(0, 9, (), np.float32), [[3], [4]], np.array([3, 4], np.float32)),
        (spaces.Box(0, 9, (2, 1), np.float16), [[1, 2], [3, 4]], np.array([[[1], [2]], [[3], [4]]], np.float16)),
        (spaces.MultiDiscrete([3, 4]), [[1.0, 2.0], [0.0, 3.0]], np.array([[1, 2], [0, 3]])),
        (spaces.MultiBinary(2), [[True, False], [True, True]], np.array([[1, 0], [1, 1]], np.int8)),
        (spaces.Text(5), ["a", "b"], np.array(["a", "b"])),
    ],
)
def test_declared_spaces_give_dtype_and_shape(space: spaces.Space[Any], values: Any, expected: np.ndarray) -> None:
    for name, declared in (("obs", (space, None)), ("actions", (None, space))):
        found = column(table(2, **{name: values}), name, spaces=declared)
        assert found.dtype == expected.dtype or found.dtype.kind == "U"
        np.testing.assert_array_equal(found, expected, strict=expected.dtype.kind != "U")


@pytest.mark.parametrize(
    ("space", "values", "message"),
    [
        (spaces.Discrete(5), [1.5], "holds 1.5, which the space Discrete(5) cannot hold"),
        (spaces.Box(0, 255, (1,), np.uint8), [[256]], "holds 256, which the space"),
        (spaces.Box(0, 255, (1,), np.uint8), [[-1.0]], "holds -1.0, which the space"),
        (spaces.Box(-1, 1, (1,), np.float32), [1e300], "holds 1e+300, which the space"),
        (spaces.Discrete(5), [np.inf], "holds inf, which the space"),
        (spaces.Box(0, 9, (2, 3)), [[[1, 2], [3, 4], [5, 6]]], "has steps of shape (3, 2); the space"),
        (spaces.Box(0, 9, (2,)), [[1.0, 2.0, 3.0]], "has steps of shape (3,); the space"),
        (spaces.Discrete(5), [[1, 2]], "has steps of shape (2,); the space"),
        (spaces.Discrete(5), [{"a": 1}], "holds no numbers, which the space"),
        (spaces.Text(5), [1], "holds no text, which the space"),
        (spaces.Dict(a=spaces.Discrete(2)), [{"b": 1}], "is not a struct of ['a']"),
        (spaces.Dict(a=spaces.Discrete(2)), [{"a": 0.5}], "'obs/a' holds 0.5"),
        (spaces.Tuple([spaces.Discrete(2)]), [{"a": 1}], "is not a tuple of 1"),
    ],
)
def test_values_that_are_not_of_the_declared_space(space: spaces.Space[Any], values: Any, message: str) -> None:
    error = reason(table(1, obs=values), spaces=(space, None))
    assert type(error) is SpaceError
    assert message in str(error)


def test_dicts_and_tuples() -> None:
    space = spaces.Dict(b=spaces.Box(-9, 9, (2,), np.float32), a=spaces.Tuple([spaces.Discrete(5), spaces.MultiBinary(2)]))
    values = [{"a": {"_0": i, "_1": [0, 1]}, "b": [i / 2, 1.0]} for i in range(3)]
    found = column(table(3, obs=values), "obs", spaces=(space, None))
    assert list(found) == list(space.spaces)
    np.testing.assert_array_equal(found["a"][0], [0, 1, 2])
    assert found["a"][1].dtype == np.int8
    np.testing.assert_array_equal(found["b"], np.array([[0, 1], [0.5, 1], [1, 1]], np.float32), strict=True)


def test_tuples_that_ray_pickled(tmp_path: Path) -> None:
    """Through the restricted unpickler: what is more than arrays is a bad row, and nothing runs."""
    marker = tmp_path / "exploded"
    tuples = [(np.float32([i, i]), np.int64(i)) for i in range(3)]
    pickles = [*(pickle.dumps(value) for value in tuples), pickle.dumps(Bomb(marker)), None]
    good, bad = prepare(with_metadata(pa.array(pickles, pa.large_binary()), "ray.data.arrow_pickled_object"))
    assert [(each.row, type(each.error)) for each in bad] == [(103, UnsafeDataError), (104, SchemaError)]
    assert not marker.exists()
    assert good is not None
    first, second = read_column(good, "obs")
    np.testing.assert_array_equal(first, np.float32([[0, 0], [1, 1], [2, 2]]), strict=True)
    np.testing.assert_array_equal(second, [0, 1, 2])


def test_packed_observations(tmp_path: Path) -> None:
    marker = tmp_path / "exploded"
    whole = [packed(np.float32([i, i])) for i in range(6)]
    cells = [whole[0], whole[1][:-20], "text", packed(Bomb(marker)), None, whole[5]]
    good, bad = prepare(table(6, obs=cells))
    assert [each.row for each in bad] == [101, 102, 103, 104]
    assert [type(each.error) for each in bad] == [CorruptFileError, SchemaError, UnsafeDataError, SchemaError]
    assert not marker.exists()
    assert good is not None
    np.testing.assert_array_equal(read_column(good, "obs"), np.float32([[0, 0], [5, 5]]), strict=True)


# Actions recorded in other units.


def test_actions_are_scaled_to_the_bounds() -> None:
    space = spaces.Box(np.float32([-2, 0]), np.float32([2, 10]))
    rows = table(3, actions=[[-1.0, -1.0], [0.0, 0.5], [1.0, 1.0]])
    found = column(rows, "actions", spaces=(None, space), recorded_action_range=(-1, 1))
    np.testing.assert_array_equal(found, np.float32([[-2, 0], [0, 7.5], [2, 10]]), strict=True)
    pendulum = spaces.Box(-2, 2, (1,), np.float32)
    found = column(table(2, actions=[0, 1]), "actions", spaces=(None, pendulum), recorded_action_range=(0, 1))
    np.testing.assert_array_equal(found, np.float32([[-2], [2]]), strict=True)


def test_rounding_is_not_outside_the_range() -> None:
    space = spaces.Box(-2, 2, (1,), np.float64)
    found = column(table(1, actions=[1 + 1e-9]), "actions", spaces=(None, space), recorded_action_range=(-1, 1))
    assert found.tolist() == [[2.0]]


def test_actions_outside_the_recorded_range() -> None:
    space = spaces.Box(-2, 2, (1,), np.float32)
    good, [bad] = prepare(table(3, actions=[0.5, 1.5, -1.0]), spaces=(None, space), recorded_action_range=(-1, 1))
    assert good is not None
    assert (good.num_rows, bad.row) == (2, 101)
    assert "An action of 1.5 is outside the recorded_action_range (-1, 1) that was declared" in str(bad.error)


@pytest.mark.parametrize("space", [None, spaces.Discrete(2), spaces.Box(-np.inf, np.inf, (1,))])
def test_scaling_needs_bounds(space: Any) -> None:
    with pytest.raises(ConfigError, match="declare a bounded Box"):
        prepare(table(), spaces=(None, space), recorded_action_range=(-1, 1))


def test_a_range_has_to_ascend() -> None:
    with pytest.raises(ConfigError, match=r"has to ascend.*\(1\.0, 1\.0\)"):
        parse(ImportConfig, {"recorded_action_range": (1, 1)})


# All of it together.


def test_the_seeds_columns(tmp_path: Path) -> None:
    write_steps(tmp_path / "in" / "x.parquet", steps(i_t=[{"n": i} for i in range(5)], logprobs_t=[0.1, 0.2, 0.3, 0.4, 0.5]))
    mapping = SEEDS | {"infos": "i_t", "action_logp": "logprobs_t"}
    found = imported_episodes(tmp_path, tmp_path / "in", mapping=mapping)
    check_steps(found)
    assert found[0].infos == [{}, {"n": 0}, {"n": 1}, {"n": 2}]
    assert found[1].extras["action_logp"].tolist() == [0.4, 0.5]


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
    [episode] = episodes(dataset)
    np.testing.assert_array_equal(episode.observations, values[[0, 1, 1]].astype(np.float32), strict=True)
    np.testing.assert_array_equal(episode.actions, np.float32([[1.0], [-0.5]]), strict=True)
    assert episode.action_space == dataset.action_space == spaces.Box(-2, 2, (1,), np.float32)


def test_spaces_as_json(tmp_path: Path) -> None:
    write_steps(tmp_path / "in" / "x.parquet", steps(o_t=[0, 1, 2, 4, 5], o_tp1=[1, 2, 3, 5, 6]))
    space = spaces.Discrete(7)
    found = imported_episodes(tmp_path, tmp_path / "in", observation_space=space_to_json(space))
    assert found[0].observation_space == space
    assert found[0].observations.tolist() == [0, 1, 2, 3]


def test_the_first_bad_row_stops_an_import(tmp_path: Path) -> None:
    write_steps(tmp_path / "in" / "x.parquet", steps(r_t=[0.5, 1.0, None, 2.0, None]), row_group_size=2)
    with pytest.raises(SchemaError, match=r"in/x\.parquet, row 2: Column 'rewards' has 1 nulls.*unreadable: quarantine"):
        imported(tmp_path, tmp_path / "in")


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
    assert "Column 'rewards' has 1 nulls" in line["reason"]


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
    with pytest.raises(SchemaError, match=r"3\.parquet, row 0: Column 'obs' is float64 where earlier rows have int64; declare"):
        imported(tmp_path, tmp_path / "in")
