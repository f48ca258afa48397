"""Which episodes a replay buffer holds, and how batches are drawn from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from offline_core.errors import DataError
from offline_core.learning.config import ReplayBufferConfig
from offline_core.learning.steps import NUMBER, Steps
from offline_core.runtime.seeding import derive_seed
from offline_core.runtime.user_code import UserCode, import_class, user_errors

SMALLEST_ERROR = 1e-6
"""A step without an error can still be drawn."""


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
        import_class(own.path, "buffer class", ReplayBuffer)
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
    arguments: dict[str, Any] = {"capacity_steps": config.capacity_steps, "replacement": replacement}
    return ReplayBuffer(**arguments) if config.buffer_class is None else UserReplayBuffer(config.buffer_class, **arguments)


class ReplaySampler:
    """Draws batches from one window after the other; each is a function of (seed, epoch, window, number) and the priorities.

    A prioritised buffer draws a step by the error that the algorithm had when it learned from it last; a step that is new,
    by the largest error so far (Schaul et al. 2016, arXiv 1511.05952).
    """

    def __init__(self, config: ReplayBufferConfig, *, seed: int, replacement: bool) -> None:
        self._config = config
        self._seed = seed
        self._replacement = replacement
        self._buffer = make_buffer(config, replacement=replacement)
        self._steps: Steps | None = None
        self._numbers = torch.zeros(0, dtype=torch.int64)
        self._errors = torch.zeros(0, dtype=torch.float64)
        """(R,) of the rows of the window; empty if nothing is prioritised."""
        self._largest = 1.0

    @property
    def prioritized(self) -> bool:
        return self._config.sampling == "prioritized"

    def load(self, steps: Steps) -> None:
        """Takes what the buffer holds now; rows that it held before keep their errors."""
        self._steps = steps
        if not self.prioritized:
            return
        numbers = steps.columns[NUMBER].cpu()
        errors = torch.full((len(numbers),), self._largest, dtype=torch.float64)
        if len(self._numbers):
            at = torch.searchsorted(self._numbers, numbers).clamp(max=len(self._numbers) - 1)
            known = self._numbers[at] == numbers
            errors[known] = self._errors[at[known]]
        self._numbers, self._errors = numbers, errors

    def batches(self, indices: Tensor, size: int, *, epoch: int, window: int, first: int) -> Iterator[tuple[int, Tensor]]:
        """(number, sample indices) of the batches of this window from number `first` on; each is drawn when it is asked for."""
        assert self._steps is not None
        for number in range(first, self._config.batches_per_read):
            generator = np.random.default_rng(derive_seed(self._seed, "replay", epoch, window, number))
            if self.prioritized:
                drawn = self._by_priority(indices, size, generator)
            else:
                drawn = self._buffer.draw(self._steps, indices, size, generator)
            yield number, indices[torch.from_numpy(drawn).to(indices.device)]

    def _by_priority(self, indices: Tensor, size: int, generator: np.random.Generator) -> np.ndarray:
        chances = self._chances(indices.cpu()).numpy()
        if self._replacement:
            upto = np.cumsum(chances)
            drawn: np.ndarray = np.searchsorted(upto, generator.random(size) * upto[-1], side="right")
            return drawn.clip(max=len(chances) - 1)
        if size >= len(chances):
            return np.arange(len(chances))
        keys = np.log(chances) + generator.gumbel(size=len(chances))  # the largest are a draw without replacement
        return np.argpartition(keys, -size)[-size:]

    def importance(self, indices: Tensor) -> Tensor | None:
        """(B,) weights of the losses that undo unequal chances, the largest 1; None where the chances are equal.

        Without replacement they are those of the first draw, near enough for batches that are small compared with the buffer.
        """
        assert self._steps is not None
        if not self.prioritized or (not self._replacement and len(indices) == len(self._steps.rows)):
            return None
        weights = self._chances(indices.cpu()) ** -self._config.importance_exponent
        return (weights / weights.max()).float().to(indices.device)

    def learned(self, indices: Tensor, errors: Tensor) -> None:
        """The errors (B,) that the algorithm had in these."""
        self._errors[indices.cpu()] = errors.double().cpu() + SMALLEST_ERROR
        self._largest = max(self._largest, float(errors.max()))

    def _chances(self, indices: Tensor) -> Tensor:
        """Return the chances of sample indices, not yet divided by their sum."""
        return self._errors[indices] ** self._config.priority_exponent

    def state(self) -> dict[str, Tensor]:
        """What the next batch depends on, besides the data."""
        if not self.prioritized:
            return {}
        largest = torch.tensor(self._largest, dtype=torch.float64)
        return {"replay.numbers": self._numbers, "replay.errors": self._errors, "replay.largest": largest}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Goes on from what `state` gave, with the same window or the one after it."""
        if self.prioritized:
            self._numbers, self._errors = state["replay.numbers"], state["replay.errors"]
            self._largest = float(state["replay.largest"])
