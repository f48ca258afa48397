"""What is outside a space, against gymnasium's own `contains`."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from offline_core.data.episodes import nested
from offline_core.data.episodes.spaces import outside, space_leaves
from offline_core.errors import SpaceError

SPACES: list[gym.Space[Any]] = [
    spaces.Box(-1, 1, (2,), np.float32),
    spaces.Box(np.array([-np.inf, 0], np.float64), np.array([0.5, np.inf], np.float64), dtype=np.float64),
    spaces.Box(0, 3, (2,), np.uint8),
    spaces.Discrete(3),
    spaces.Discrete(3, start=-1),
    spaces.MultiDiscrete([3, 2]),
    spaces.MultiDiscrete([3, 2], start=[-1, 1]),
    spaces.MultiBinary(2),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
@given(data=st.data())
def test_outside_is_what_is_not_contained(space: gym.Space[Any], data: st.DataObject) -> None:
    dtype = np.dtype(space.dtype)
    elements: Any = st.sampled_from([-1.5, -1.0, 0.0, 0.5, 1.0, 9.0, np.inf]) if dtype.kind == "f" else st.integers(0, 4)
    if dtype.kind == "i" and dtype.itemsize > 1:
        elements = st.integers(-2, 4)
    values = data.draw(hnp.arrays(dtype, (7, *(space.shape or ())), elements=elements))
    assert outside(values, space).tolist() == [not space.contains(value) for value in values]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_samples_are_inside(space: gym.Space[Any]) -> None:
    space.seed(0)
    samples = np.stack([space.sample() for _ in range(50)])
    assert not outside(samples, space).any()
    assert not outside(samples[:0], space).any()
    assert outside(np.zeros((3, 5)), space).all(), "of another shape"


def test_text() -> None:
    space = spaces.Text(3, charset="ab")
    values = np.array(["a", "abc", "bab", "abab", ""])
    assert outside(values, space).tolist() == [not space.contains(str(value)) for value in values]


def test_values_of_another_dtype_are_taken_for_what_they_mean() -> None:
    assert outside(np.array([0.0, 1.0, 0.5, 2.0]), spaces.Discrete(2)).tolist() == [False, False, True, True]
    bound = spaces.Box(0, 0.7, (), np.float32)
    assert not outside(np.array([0.7]), bound).any(), "which is less as float32"
    assert outside(np.array([0.71, 1e300]), bound).all()
    assert outside(np.array(["0"]), spaces.Discrete(2)).all()


@pytest.mark.parametrize("space", [SPACES[0], SPACES[7]], ids=str)
def test_nan_is_not_looked_at(space: gym.Space[Any]) -> None:
    assert not outside(np.full((2, 2), np.nan), space).any()


def test_leaves_are_named_as_those_of_the_columns() -> None:
    space = spaces.Dict({"b": spaces.Tuple([spaces.Discrete(2), SPACES[0]]), "a": SPACES[0]})
    space.seed(0)
    tree = nested.stack([space.sample(), space.sample()], "obs")
    leaves, columns = space_leaves(space, "obs"), nested.flatten(tree, "obs")
    assert leaves.keys() == columns.keys()
    assert not any(outside(columns[name], leaf).any() for name, leaf in leaves.items())
    assert space_leaves(None, "obs") == {}
    assert space_leaves(SPACES[0], "obs") == {"obs": SPACES[0]}


def test_a_space_that_cannot_be_stored_cannot_be_compared_with() -> None:
    with pytest.raises(SpaceError, match="Graph"):
        outside(np.zeros(3), spaces.Graph(SPACES[0], None))
