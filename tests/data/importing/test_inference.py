"""Spaces that nobody declared: from types, and from what the values say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.datasets.statistics import Statistics, StatisticsBuilder
from offline_core.data.episodes import nested
from offline_core.data.importing.inference import inferred_space, inferred_spaces
from offline_core.data.importing.stray_actions import ActionCounts
from tests.data.datasets.factories import episode
from tests.data.formats.sources.factories import imported, steps, write_steps


def infer(values: Any) -> spaces.Space[Any] | None:
    """Of all values, whose first rows are the template."""
    builder = StatisticsBuilder()
    builder.add({"obs": values})
    return inferred_space(nested.map_leaves(lambda array: array[:0], values), "obs", builder.result())


@pytest.mark.parametrize(
    ("values", "space"),
    [
        (np.zeros((3, 4), np.float32), spaces.Box(-np.inf, np.inf, (4,), np.float32)),
        (np.zeros(3), spaces.Box(-np.inf, np.inf, (), np.float64)),
        (np.array([0, 4, 2]), spaces.Discrete(5)),
        (np.array([1, 4], np.uint8), spaces.Discrete(5)),
        (np.array([-2, 3]), spaces.Discrete(6, start=-2)),
        (np.array([True, False]), spaces.Discrete(2)),
        (np.ones((2, 3), bool), spaces.MultiBinary((3,))),
        (np.array([[0, 6], [2, 0]]), spaces.MultiDiscrete([3, 7])),
        (np.array([[0, -6], [2, 0]], np.int16), spaces.Box(-(2**15), 2**15 - 1, (2,), np.int16)),
        (np.zeros((2, 100), np.int8), spaces.Box(-128, 127, (100,), np.int8)),
        (np.full((2, 8, 8, 3), 7, np.uint8), spaces.Box(0, 255, (8, 8, 3), np.uint8)),
        (
            {"b": np.zeros((2, 1)), "a": (np.array([0, 1]), np.array([2, 0]))},
            spaces.Dict(
                b=spaces.Box(-np.inf, np.inf, (1,), np.float64), a=spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3)])
            ),
        ),
        (np.array(["text"]), None),
        ({"a": np.array(["text"]), "b": np.zeros(1)}, None),
    ],
)
def test_spaces_of_values(values: Any, space: spaces.Space[Any] | None) -> None:
    assert infer(values) == space


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.bool_, np.float32, np.int32])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (4, 5), (9, 9)])
def test_values_are_in_their_space(dtype: Any, shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).integers(0, 2 if dtype == np.bool_ else 9, (50, *shape)).astype(dtype)
    space = infer(values)
    assert space is not None
    assert all(space.contains(np.asarray(value, space.dtype)) for value in values)
    assert (space.shape or ()) == shape


def test_whole_numbers_without_statistics_say_nothing() -> None:
    assert inferred_space(np.zeros(0, np.int64), "obs", {}) is None


def test_what_is_declared_comes_first_and_what_an_episode_says_next() -> None:
    own = episode(0)
    declared = spaces.Box(-1, 1, (4,), np.float32)
    assert inferred_spaces((declared, None), own, Statistics(), ActionCounts())[0] == (declared, own.action_space)
    grid, nothing = spaces.MultiDiscrete([[2, 2]]), spaces.Tuple([])  # without a length, and of length 0
    assert inferred_spaces((grid, nothing), own, Statistics(), ActionCounts())[0] == (grid, nothing)


def test_spaces_of_an_import(tmp_path: Path) -> None:
    """Two files: the largest action stands in the second."""
    write_steps(tmp_path / "in" / "1.parquet", steps())
    write_steps(tmp_path / "in" / "2.parquet", steps(eps_id=["c"] * 3 + ["d"] * 2, a_t=[0, 1, 3, 1, 2]))
    dataset = open_dataset(imported(tmp_path, tmp_path / "in").dataset.uri)
    assert dataset.observation_space == spaces.Box(-np.inf, np.inf, (2,), np.float64)
    assert dataset.action_space == spaces.Discrete(4)


@pytest.mark.parametrize("values", [np.array([-(2**62), 2**62]), np.array([0, 65_536]), np.array([[0, 1], [70_000, 2]])])
def test_large_whole_numbers_are_amounts_and_not_choices(values: np.ndarray) -> None:
    space = infer(values)
    assert isinstance(space, spaces.Box) and all(space.contains(np.asarray(value)) for value in values)
