"""Draws batches out of a replay buffer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from offline_core.learning.replay.buffer import make_buffer
from offline_core.learning.replay.config import ReplayBufferConfig
from offline_core.learning.steps import NUMBER, Steps
from offline_core.runtime.seeding import derive_seed

SMALLEST_ERROR = 1e-6
"""A step without an error can still be drawn."""


class Drawing:
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
            found: np.ndarray = np.searchsorted(upto, generator.random(size) * upto[-1], side="right")
            return found.clip(max=len(chances) - 1)
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
        """Not yet divided by their sum."""
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
