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
        case spaces.Discrete():
            low, high = space.start, int(space.start) + int(space.n) - 1
        case spaces.MultiDiscrete():
            low, high = space.start, np.add(space.start, space.nvec) - 1
        case spaces.MultiBinary():
            low, high = 0, 1
        case _:
            raise SpaceError(f"Values cannot be compared with a {type(space).__name__} space.")
    if values.shape[1:] != (space.shape or ()) or values.dtype.kind not in "biuf":
        return np.ones(len(values), bool)
    wrong = (values < low) | (values > high)
    if values.dtype.kind == "f" and np.dtype(space.dtype).kind != "f":
        wrong |= np.floor(values) < values
    return any_in_step(wrong)


def any_in_step(wrong: np.ndarray) -> np.ndarray:
    """Shape (N,): whether any of the numbers of a step, in (N, …), is True."""
    return np.asarray(wrong.any(axis=tuple(range(1, wrong.ndim))))
