"""Buffer classes of a user's own."""

from __future__ import annotations

from typing import Any

import numpy as np

from offline_core.learning.replay_buffer import ReplayBuffer


class Longest(ReplayBuffer):
    """Keeps the longest episodes for ever, and draws their last steps."""

    def __init__(self, *, episodes: int, **given: Any) -> None:
        super().__init__(**given)
        self.episodes = episodes

    def keep(self, lengths: np.ndarray) -> np.ndarray:
        stays = np.zeros(len(lengths), bool)
        stays[np.argsort(-lengths, kind="stable")[: self.episodes]] = True
        return stays

    def draw(self, steps: Any, indices: Any, size: int, generator: np.random.Generator) -> np.ndarray:
        return np.flatnonzero(np.isin(indices, steps.last_step))


class KeepsNone(ReplayBuffer):
    def keep(self, lengths: np.ndarray) -> np.ndarray:
        return np.zeros(len(lengths), bool)


class Raises(ReplayBuffer):
    def draw(self, steps: Any, indices: Any, size: int, generator: np.random.Generator) -> np.ndarray:
        raise RuntimeError("no idea")


class DrawsBeyond(ReplayBuffer):
    def draw(self, steps: Any, indices: Any, size: int, generator: np.random.Generator) -> np.ndarray:
        return np.array([len(indices)])


class CannotBeMade(ReplayBuffer):
    def __init__(self, **given: Any) -> None:
        raise ValueError("too small a world")


class NoBuffer:
    """Not a subclass."""
