"""What columns have to hold, and what they may hold it as: flags, ids, times, maps, observations of any space, actions."""

from __future__ import annotations

import datetime
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa
import pytest
from gymnasium import spaces

from offline_core.data.episodes.arrow import read_column
from offline_core.data.importing.config import ImportConfig
from offline_core.errors import (
    ConfigError,
    CorruptFileError,
    DataError,
    NonFiniteError,
    SchemaError,
    SpaceError,
    UnsafeDataError,
)
from offline_core.runtime.config import parse
from tests.data.datasets.factories import Bomb
from tests.data.importing.preparing import column, packed, prepare, reason, table, with_metadata


@pytest.mark.parametrize(
    ("name", "values", "kind", "message"),
    [
        ("obs", [[1.0, np.nan]], NonFiniteError, "'obs' is NaN"),
        ("obs", [{"a": [1.0], "b": np.nan}], NonFiniteError, "'obs/b' is NaN"),
        ("new_obs", [[1.0, np.nan]], NonFiniteError, "'new_obs' is NaN"),
        ("actions", [np.inf], NonFiniteError, "'actions' is NaN or infinite"),
        ("rewards", [-np.inf], NonFiniteError, "'rewards' is NaN or infinite"),
        ("rewards", [[1.0, 2.0]], SchemaError, r"float64 of shape \(2,\) a step; it has to be one number"),
        ("rewards", ["much"], SchemaError, "'rewards' has text that is no number, such as 'much'"),
        ("actions", ["left"], SchemaError, "'actions' has text that is no number, such as 'left'"),
        ("t", [np.nan], NonFiniteError, "'t' is NaN"),
        ("t", ["noon"], SchemaError, "'t' has text that is no number, such as 'noon'"),
        ("t", ["2024-13-01"], SchemaError, "'t' has text that is no time, such as '2024-13-01'"),
        ("t", pa.array([1], pa.time32("s")), SchemaError, "'t' has type time32.*neither a timestamp nor a date or duration"),
        ("t", pa.array([None], pa.timestamp("ms")), SchemaError, "'t' has 1 null"),
        ("t", [datetime.date(3000, 1, 1)], SchemaError, "'t' has times before 1678 or after 2261"),
        ("dones", [2], SchemaError, "'dones' holds 2; it has to be true or false"),
        ("dones", ["maybe"], SchemaError, "'dones' says 'maybe'"),
        ("truncateds", [0.5], SchemaError, "'truncateds' holds 0.5"),
        ("truncateds", pa.array([None], pa.bool_()), SchemaError, "'truncateds' has 1 null"),
        ("t", pa.array([2**64 - 1], pa.uint64()), SpaceError, "'t' holds 18446744073709551615, which 64 bits cannot hold"),
        ("eps_id", pa.array([None], pa.string()), SchemaError, "'eps_id' is null"),
        ("eps_id", [np.nan], SchemaError, "'eps_id' is null, NaN or empty"),
        ("eps_id", [""], SchemaError, "'eps_id' is null, NaN or empty"),
        ("eps_id", [[1]], SchemaError, "'eps_id' has type list.*cannot be an id"),
        ("infos", ["{"], SchemaError, "'infos' holds text that is no JSON"),
        ("infos", ["[1]"], SchemaError, "'infos' has type string; it has to hold structs"),
        ("infos", [[1]], SchemaError, "'infos' has type list"),
        ("infos", [b"\xc1"], CorruptFileError, "not a stored episode"),
        ("infos", [b"\x01"], SchemaError, "'infos' has type binary"),
        ("obs", [datetime.date(2024, 1, 1)], SchemaError, "'obs' has type date32"),
        ("obs", [[None, 1.0]], SchemaError, "nulls in 1 of 1 rows"),
    ],
)
def test_values_that_cannot_be(name: str, values: Any, kind: type[DataError], message: str) -> None:
    error = reason(table(1, **{name: values}))
    assert type(error) is kind
    assert re.search(message, str(error)), error


@pytest.mark.parametrize(
    ("name", "values", "wanted"),
    [
        ("rewards", pa.array([Decimal("-0.792"), Decimal("1.5")], pa.decimal128(10, 3)), [-0.792, 1.5]),
        ("rewards", pa.array([Decimal(3), Decimal(-4)], pa.decimal128(10, 0)), [3.0, -4.0]),
        ("rewards", pa.array([Decimal(3), Decimal(-4)], pa.decimal256(60, 0)), [3.0, -4.0]),
        ("actions", pa.array([Decimal(3), Decimal(0)], pa.decimal128(1, 0)), [3, 0]),
        ("actions", pa.array([Decimal("0.5"), Decimal("-1.0")]), [0.5, -1.0]),
        ("obs", pa.array([[Decimal("0.5"), Decimal(2)]] * 2, pa.list_(pa.decimal128(5, 2))), [[0.5, 2.0]] * 2),
        ("t", pa.array([Decimal(0), Decimal(1)], pa.decimal128(38, 0)), [0, 1]),
        ("dones", pa.array([Decimal(0), Decimal(1)], pa.decimal128(1, 0)), [False, True]),
        ("t", pa.array([0, 1500], pa.duration("ms")), [[0], [1_500_000_000]]),
        ("cost", pa.array([Decimal("0.5"), Decimal(2)]), [0.5, 2.0]),
    ],
)
def test_decimals_are_numbers_and_durations_are_times(name: str, values: pa.Array, wanted: list[Any]) -> None:
    found = column(table(2, **{name: values}), {"dones": "terminateds"}.get(name, name))
    assert found.tolist() == wanted
    assert isinstance(found.ravel()[0].item(), type(np.ravel(wanted)[0].item()))


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
        ([7.0, 8.5], ["7", "8.5"]),
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
        (pa.array([1, 2], pa.timestamp("ms")), np.array([[1_000_000], [2_000_000]])),
        (pa.array([2**62 + 1, 2**62 + 2], pa.timestamp("ns", "UTC")), np.array([[2**62 + 1], [2**62 + 2]])),
        ([datetime.date(1970, 1, 1), datetime.date(1970, 1, 2)], np.array([[0], [86_400 * 10**9]])),
        (["1970-01-01", "1970-01-02"], np.array([[0], [86_400 * 10**9]])),
        (["1970-01-01 00:00:01", "1970-01-01T00:00:01.5"], np.array([[1_000_000_000], [1_500_000_000]])),
        (["1970-01-01T01:00:00+01:00", "1970-01-01T00:00:00.25Z"], np.array([[0], [250_000_000]])),
    ],
)
def test_times(values: Any, expected: np.ndarray) -> None:
    found = column(table(2, t=values), "t")
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape), "only whole numbers can number steps"
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
        (spaces.Discrete(5), pa.array([2**64 - 1], pa.uint64()), "holds 18446744073709551615, which the space"),
        (spaces.Box(0, 255, (1,), np.uint8), pa.array([-1], pa.int8()), "holds -1, which the space"),
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


def test_how_probable_actions_were_is_scaled_with_them() -> None:
    """Of a Box twice, and five times as wide as what was recorded: densities are a tenth. One component has no width."""
    space = spaces.Box(np.float32([-2, 0, 3]), np.float32([2, 10, 3]))
    rows = table(2, actions=[[-1.0, 1.0, 0.0], [0.5, 0.0, 0.0]], action_logp=[np.log(0.3), -2.0])
    found = column(rows, "action_logp", spaces=(None, space), recorded_action_range=(-1, 1))
    np.testing.assert_allclose(found, [np.log(0.03), -2.0 - np.log(10)])
    assert column(rows, "action_logp", spaces=(None, space)).tolist() == [np.log(0.3), -2.0], "in the units that they are in"
    each = table(1, actions=[[0.0, 0.0, 0.0]], action_logp=[[-1.0, -1.0]])
    refused = reason(each, spaces=(None, space), recorded_action_range=(-1, 1))
    assert "'action_logp' has float64 of shape (2,) a step; it has to be one number" in str(refused)


def test_rounding_is_not_outside_the_range() -> None:
    space = spaces.Box(-2, 2, (1,), np.float64)
    found = column(table(1, actions=[1 + 1e-9]), "actions", spaces=(None, space), recorded_action_range=(-1, 1))
    assert found.tolist() == [[2.0]]


@pytest.mark.parametrize("space", [None, spaces.Discrete(2), spaces.Box(-np.inf, np.inf, (1,))])
def test_scaling_needs_bounds(space: Any) -> None:
    with pytest.raises(ConfigError, match="declare a bounded Box"):
        prepare(table(), spaces=(None, space), recorded_action_range=(-1, 1))


@pytest.mark.parametrize("recorded", [(1, 1), (-np.inf, np.inf), (-1, np.nan)])
def test_a_range_has_to_ascend(recorded: tuple[float, float]) -> None:
    with pytest.raises(ConfigError, match="has to be finite and ascend"):
        parse(ImportConfig, {"recorded_action_range": recorded})


def test_a_probability_becomes_its_logarithm() -> None:
    found = column(table(3, actions=[0, 1, 1], p=[1.0, 0.5, 0.25]), "action_logp", mapping={"action_prob": "p"})
    assert found.tolist() == [0.0, np.log(0.5), np.log(0.25)]


@pytest.mark.parametrize(
    ("p", "message"),
    [(0.0, "'p' is mapped to action_prob and holds 0: what was done has a probability above 0"), (40.0, "at most 1")],
)
def test_what_is_no_probability_is_refused(p: float, message: str) -> None:
    assert message in str(reason(table(1, p=[p]), mapping={"action_prob": "p"}))
