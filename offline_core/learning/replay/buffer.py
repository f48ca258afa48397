"""Which episodes a replay buffer holds, and how it draws."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from offline_core.errors import ConfigError, DataError
from offline_core.learning.replay.config import ReplayBufferConfig
from offline_core.learning.steps import Steps
from offline_core.runtime.user_code import UserCode, import_object
from offline_core.runtime.user_errors import user_errors


class ReplayBuffer:
    """Keeps the newest episodes and draws steps uniformly. A user's class overrides `keep`, `draw`, or both.

    It does not hold the episodes, it only decides. It is made anew in each process of a run, so its answers are a function of
    its arguments; then a killed run resumes to the same bits.

    Arguments:
        capacity_steps: of `data.buffer`.
        replacement: of `optimizer`: a batch may hold a step twice.
    """

    def __init__(self, *, capacity_steps: int, replacement: bool) -> None:
        self.capacity_steps = capacity_steps
        self.replacement = replacement

    def keep(self, lengths: np.ndarray) -> np.ndarray:
        """(E,) bool, which episodes stay; asked after each read.

        Arguments:
            lengths: (E,) int64 of the episodes in steps, the oldest first.
        """
        newer = np.cumsum(lengths[::-1])[::-1]
        stays: np.ndarray = newer <= self.capacity_steps
        stays[-1:] = True  # an episode longer than the buffer is there by itself
        return stays

    def draw(self, steps: Steps, indices: Tensor, size: int, generator: np.random.Generator) -> np.ndarray:
        """(size,) int64, which of the sample indices make the next batch; fewer if there are fewer, without replacement.

        Arguments:
            steps: all that the buffer holds; its `columns` are those the algorithm asks for.
            indices: (U,) int64 sample indices, rows of `steps`: of single steps, or the first ones of sequences.
        """
        if self.replacement:
            return generator.integers(len(indices), size=size)
        return generator.choice(len(indices), size=min(size, len(indices)), replace=False)


class UserReplayBuffer(ReplayBuffer):
    """The user's class: its errors get its name, its answers are checked."""

    def __init__(self, own: UserCode, *, capacity_steps: int, replacement: bool) -> None:
        super().__init__(capacity_steps=capacity_steps, replacement=replacement)
        kind = import_object(own.path, "buffer class")
        if not (isinstance(kind, type) and issubclass(kind, ReplayBuffer)):
            raise ConfigError(f"The buffer class {own} is not a subclass of offline_core's ReplayBuffer.")
        self._name = f"buffer class {own}"
        self._made: ReplayBuffer = own.make("buffer class", capacity_steps=capacity_steps, replacement=replacement)

    def keep(self, lengths: np.ndarray) -> np.ndarray:
        with user_errors(self._name, f"in keep, with {len(lengths):,} episodes"):
            stays = np.asarray(self._made.keep(lengths.copy()))
        if stays.dtype != bool or stays.shape != lengths.shape or not stays.any():
            raise DataError(
                f"keep of the {self._name} gives {stays.dtype} of shape {stays.shape}: it has to give one boolean for each of "
                f"{len(lengths):,} episodes, and one of them has to stay."
            )
        return stays

    def draw(self, steps: Steps, indices: Tensor, size: int, generator: np.random.Generator) -> np.ndarray:
        with user_errors(self._name, f"in draw, from {len(indices):,} steps or sequences"):
            drawn = np.asarray(self._made.draw(steps, indices, size, generator))
        if drawn.dtype.kind not in "iu" or drawn.ndim != 1 or not len(drawn) or drawn.min() < 0 or drawn.max() >= len(indices):
            raise DataError(
                f"draw of the {self._name} gives {drawn.dtype} of shape {drawn.shape}: it has to give a list of numbers from 0 "
                f"to {len(indices) - 1:,}, which say what the batch is of."
            )
        return drawn.astype(np.int64)


def make_buffer(config: ReplayBufferConfig, *, replacement: bool) -> ReplayBuffer:
    """The buffer that the parameters name.

    Raises:
        ConfigError: a user's class cannot be made.
    """
    given: dict[str, Any] = {"capacity_steps": config.capacity_steps, "replacement": replacement}
    return ReplayBuffer(**given) if config.buffer_class is None else UserReplayBuffer(config.buffer_class, **given)
