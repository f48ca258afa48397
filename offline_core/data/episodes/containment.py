"""Which of many values a gymnasium space does not contain: `Space.contains`, for all steps at once."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from offline_core.errors import SpaceError


def outside(values: np.ndarray, space: gym.Space[Any]) -> np.ndarray:
    """Shape (N,), True for the values, of shape (N, …), that are not in the space; NaN is not looked at.

    Unlike `contains`, a value of another dtype is taken for what it means: 1.0 is in Discrete(2), and a float64 is compared
    with the bounds of a float32 Box as float32.

    Raises:
        SpaceError: a kind of space that cannot be stored either.
    """
    low: Any
    high: Any
    match space:
        case spaces.Text():
            texts, which = np.unique(values, return_inverse=True)
            return np.array([not space.contains(str(text)) for text in texts], bool)[which]
        case spaces.Box():
            low, high = space.low, space.high
            if values.dtype.kind == "f" and low.dtype.kind == "f":
                with np.errstate(over="ignore"):
                    values = values.astype(low.dtype, copy=False)
        case _:
            if (bounds := discrete_bounds(space)) is None:
                raise SpaceError(f"Values cannot be compared with a {type(space).__name__} space.")
            low, high = bounds
    if values.shape[1:] != (space.shape or ()) or values.dtype.kind not in "biuf":
        return np.ones(len(values), bool)
    wrong = (values < low) | (values > high)
    if values.dtype.kind == "f" and np.dtype(space.dtype).kind != "f":
        wrong |= np.floor(values) < values
    return any_in_step(wrong)


def discrete_bounds(space: gym.Space[Any]) -> tuple[Any, Any] | None:
    """Return the smallest and the largest value of each component of a discrete space; None for other spaces."""
    match space:
        case spaces.Discrete():
            return int(space.start), int(space.start) + int(space.n) - 1
        case spaces.MultiDiscrete():
            start = space.start.astype(np.int64)
            return start, start + space.nvec.astype(np.int64) - 1
        case spaces.MultiBinary():
            return 0, 1
    return None


def any_in_step(wrong: np.ndarray) -> np.ndarray:
    """Shape (N,): whether any of the numbers of a step, in (N, …), is True."""
    return np.asarray(wrong.any(axis=tuple(range(1, wrong.ndim))))
