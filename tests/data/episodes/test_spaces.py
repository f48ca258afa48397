"""Spaces ⇄ JSON text: nothing that makes a space what it is may get lost, and nothing hostile may get in."""

from __future__ import annotations

import base64
import io
import json
import tracemalloc
import zlib
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import yaml
from gymnasium import spaces
from hypothesis import HealthCheck, given, settings

from offline_core.data.episodes import space_from_json, space_to_json
from offline_core.data.episodes import spaces as module
from offline_core.errors import SpaceError
from tests.cases import examples
from tests.data.episodes.strategies import any_spaces


def through_text(space: gym.Space[Any]) -> gym.Space[Any]:
    return space_from_json(json.loads(json.dumps(space_to_json(space))))


def box(low: Any, high: Any) -> spaces.Box:
    return spaces.Box(np.array(low, np.float32), np.array(high, np.float32))


def key_orders(space: gym.Space[Any]) -> list[Any]:
    if isinstance(space, spaces.Dict):
        return [list(space.spaces), [key_orders(child) for child in space.spaces.values()]]
    return [key_orders(child) for child in space.spaces] if isinstance(space, spaces.Tuple) else []


@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.too_slow])
@given(any_spaces())
def test_every_space_comes_back_equal(space: gym.Space[Any]) -> None:
    again = through_text(space)
    assert again == space
    assert again.dtype == space.dtype
    assert again.shape == space.shape
    assert key_orders(again) == key_orders(space)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-np.inf, np.inf, (), np.float16),
        spaces.Box(np.array([-np.inf, 0], np.float32), np.array([1, np.inf], np.float32)),
        spaces.Box(-np.inf, 3, (2, 3), np.float64),
        spaces.Box(0, 255, (8, 8, 3), np.uint8),
        spaces.Box(-(2**63), 2**63 - 2, (2,), np.int64),
        spaces.Box(0, 2**64 - 1, (2,), np.uint64),
        spaces.Box(0, 1, (0,)),
        spaces.Box(0, 1, (2,), np.bool_),
        spaces.Discrete(3, start=-5),
        spaces.Discrete(3, dtype=np.int32),
        spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[1, 2], [3, 4]]),
        spaces.MultiBinary(np.array([2, 3])),
        spaces.Text(3, min_length=0, charset='äβ\0"\n'),
        spaces.Dict(),
        spaces.Tuple([]),
    ],
    ids=str,
)
def test_corner_spaces_come_back_equal(space: gym.Space[Any]) -> None:
    again = through_text(space)
    assert again == space
    assert again.dtype == space.dtype


def test_a_box_is_exactly_as_wide_as_before_and_not_nearly() -> None:
    """gymnasium calls boxes equal whose bounds are close; the bits have to be the same."""
    low = np.array([0.1, -1e-30, -np.inf], np.float32)
    again = through_text(spaces.Box(low, np.float32([0.3, 1e30, 5])))
    assert isinstance(again, spaces.Box)
    assert again.low.tobytes() == low.tobytes()
    assert again.bounded_below.tolist() == [True, True, False]


def test_what_rllib_wrote_is_read() -> None:
    """A map as it stands in a CartPole recording, and one without the `start` that older Ray leaves out."""
    bound = np.array([4.8, np.inf], np.float32)
    stored = {"space": "box", "low": packed(-bound), "high": packed(bound), "shape": [2], "dtype": "<f4"}
    assert space_from_json(stored) == spaces.Box(-bound, bound)
    assert space_from_json({"space": "discrete", "n": 4}) == spaces.Discrete(4)


@pytest.mark.parametrize(
    ("written", "space"),
    [
        ("{space: box, low: [-10, -1.5], high: [10, .inf], shape: [2], dtype: float32}", box([-10, -1.5], [10, np.inf])),
        ("{space: box, low: -1, high: 1, shape: [2, 3], dtype: <f4}", spaces.Box(-1, 1, (2, 3))),
        ("{space: box, low: [[0, 1]], high: [[2, 3]], shape: [1, 2], dtype: float32}", box([[0, 1]], [[2, 3]])),
        ("{space: box, low: 0, high: 255, shape: [8, 8, 3], dtype: uint8}", spaces.Box(0, 255, (8, 8, 3), np.uint8)),
        ("{space: box, low: -.inf, high: .inf, shape: [], dtype: float64}", spaces.Box(-np.inf, np.inf, (), np.float64)),
        ("{space: multi-discrete, nvec: [2, 3], dtype: int64}", spaces.MultiDiscrete([2, 3])),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else "",
)
def test_a_map_by_hand_has_bounds_that_are_numbers_or_lists(written: str, space: gym.Space[Any]) -> None:
    read = space_from_json(yaml.safe_load(written))
    assert read == space
    assert (read.dtype, read.shape) == (space.dtype, space.shape)
    assert through_text(read) == space  # and is stored like any other


@pytest.mark.parametrize(
    ("low", "high", "shape", "dtype", "told"),
    [
        ([-1, -1], 1, [3], "float32", "reshape"),
        ([[1], [1, 2]], 3, [2], "float32", "inhomogeneous"),
        ([0, "a"], 3, [2], "float32", "could not convert"),
        (None, 1, [2], "float32", "float"),
        (0.5, 3, [2], "int64", "int64, which cannot hold 0.5"),
        ([0, 1], [2, 2.5], [2], "int64", r"int64, which cannot hold \[2, 2.5\]"),
        (-1, 3, [2], "uint8", "-1 out of bounds"),
        (0, 1, [10**5, 10**5], "float32", "unpack to more than"),
    ],
)
def test_bounds_by_hand_that_do_not_fit_are_refused(low: Any, high: Any, shape: list[int], dtype: str, told: str) -> None:
    with pytest.raises(SpaceError, match=told):
        space_from_json({"space": "box", "low": low, "high": high, "shape": shape, "dtype": dtype})


@pytest.mark.parametrize(
    ("space", "name"),
    [
        (spaces.Sequence(spaces.Discrete(2)), "Sequence"),
        (spaces.Graph(spaces.Discrete(2), None), "Graph"),
        (spaces.Dict({"inner": spaces.OneOf([spaces.Discrete(2)])}), "OneOf"),
    ],
)
def test_spaces_of_no_fixed_shape_are_refused_by_name(space: gym.Space[Any], name: str) -> None:
    with pytest.raises(SpaceError, match=name):
        space_to_json(space)


def test_keys_that_are_no_text_are_refused() -> None:
    with pytest.raises(SpaceError, match=r"\[1, 2\]"):
        space_to_json(spaces.Dict([(1, spaces.Discrete(2)), (2, spaces.Discrete(2))]))  # type: ignore[list-item]


def packed(array: np.ndarray, *, allow_pickle: bool = False) -> str:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=allow_pickle)
    return base64.b64encode(zlib.compress(buffer.getvalue())).decode()


def header_only(shape: tuple[int, ...]) -> str:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return base64.b64encode(zlib.compress(buffer.getvalue())).decode()


ZEROS = packed(np.zeros(2, np.float32))


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"space": None},
        {"space": "simplex", "shape": [2]},
        {"space": "box"},
        {"space": "box", "low": ZEROS, "high": ZEROS, "shape": [3], "dtype": "<f4"},
        {"space": "box", "low": ZEROS, "high": ZEROS, "shape": [2], "dtype": "O"},
        {"space": "box", "low": ZEROS, "high": ZEROS, "shape": [2], "dtype": "no such"},
        {"space": "box", "low": "%%%", "high": ZEROS, "shape": [2], "dtype": "<f4"},
        {"space": "box", "low": base64.b64encode(b"no zlib").decode(), "high": ZEROS, "shape": [2], "dtype": "<f4"},
        {"space": "box", "low": header_only((10**15,)), "high": ZEROS, "shape": [2], "dtype": "<f4"},
        {"space": "discrete", "n": -1},
        {"space": "discrete", "n": "2"},
        {"space": "multi-discrete", "nvec": packed(np.array([0])), "dtype": "<i8"},
        {"space": "multi-binary", "n": [[1]]},
        {"space": "tuple", "spaces": 3},
        {"space": "dict", "spaces": [1]},
        {"space": "text", "max_length": -1, "min_length": 0, "charset": "a"},
        {"space": b"bytes"},
        "box",
        None,
    ],
    ids=lambda stored: str(stored)[:40],
)
def test_maps_that_make_no_space_are_refused(stored: Any) -> None:
    with pytest.raises(SpaceError):
        space_from_json(stored)


def test_types_by_hand_are_those_of_gymnasium_and_what_is_missing_is_named() -> None:
    assert space_from_json({"space": "box", "low": -1, "high": 1, "shape": [2]}) == spaces.Box(-1, 1, (2,))
    assert space_from_json({"space": "multi-discrete", "nvec": [2, 3]}) == spaces.MultiDiscrete([2, 3])
    with pytest.raises(SpaceError, match=r"A space \{.*\} has no 'high', which it needs"):
        space_from_json({"space": "box", "low": -1, "shape": [2]})


def test_a_map_that_is_nested_without_end_is_refused() -> None:
    stored: dict[str, Any] = {"space": "discrete", "n": 2}
    for _ in range(5000):
        stored = {"space": "tuple", "spaces": [stored]}
    with pytest.raises(SpaceError):
        space_from_json(stored)


def test_bounds_that_are_a_pickle_are_refused() -> None:
    bounds = packed(np.array([0.0, None]), allow_pickle=True)
    with pytest.raises(SpaceError, match="allow_pickle"):
        space_from_json({"space": "box", "low": bounds, "high": bounds, "shape": [2], "dtype": "<f4"})


def test_a_zlib_bomb_in_the_bounds_is_refused_before_it_goes_off(monkeypatch: pytest.MonkeyPatch) -> None:
    limit, claimed = 2**20, 2**26
    monkeypatch.setattr(module, "MAX_BOUNDS_BYTES", limit)
    bomb = base64.b64encode(zlib.compress(bytes(claimed))).decode()
    tracemalloc.start()
    try:
        with pytest.raises(SpaceError, match="more than"):
            space_from_json({"space": "box", "low": bomb, "high": bomb, "shape": [2], "dtype": "<f4"})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < claimed / 4


def test_a_box_is_found_wherever_it_is() -> None:
    box, list_ = spaces.Box(-1, 1, (2,)), spaces.Discrete(3)
    assert module.has_box(box) and module.has_box(spaces.Dict({"mode": list_, "rest": spaces.Tuple([list_, box])}))
    assert not module.has_box(list_) and not module.has_box(spaces.Tuple([list_, spaces.MultiBinary(2)]))
