"""What a policy remembers of the episodes that it plays."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from offline_core.data.episodes import nested
from offline_core.data.episodes.nested import Nested


@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """What a decision transformer sees again of B episodes; its size does not grow with them."""

    tokens: Tensor
    """(B, context_steps, 3, units): return to go, observation and action of the last steps, the latest last."""
    returns_to_go: Tensor
    """(B,) float64, at the latest step."""
    steps: Tensor
    """(B,) int64, steps of the episode so far; only so many tokens are of it."""


@dataclass(frozen=True, slots=True, eq=False)
class PolicyState:
    """The memory of B episodes, one a row. `Policy.initial_state` makes it, `Policy.act` takes it and returns the next one."""

    starts: np.ndarray
    """(B,) bool: the next observation is the first of its episode."""
    frames: Nested | None = None
    """(B, frames, …): the latest observations as numpy arrays, the oldest first."""
    memory: Tensor | None = None
    """(B, units): the memory of a recurrent policy."""
    context: Context | None = None
    """The context of a decision transformer."""
    rewards: np.ndarray | None = None
    """(B,) rewards of the last actions; None: not yet known."""

    def received(self, rewards: np.ndarray) -> PolicyState:
        """The state after these rewards (B,) for the last actions; only a decision transformer looks at them."""
        return self if self.context is None else replace(self, rewards=rewards)

    def reset(self, starts: np.ndarray) -> PolicyState:
        """Forget what was seen in the rows where `starts` (B,) is true: a new episode begins there."""
        if self.frames is None and self.memory is None and self.context is None:
            return self  # nothing was seen
        return replace(self, starts=self.starts | starts)

    def stacked(self, observations: Nested, frames: int) -> Nested:
        """(B, frames, …): the frames after these observations (B, …); before its first one, an episode repeats that."""

        def push(leaf: np.ndarray, stack: np.ndarray) -> np.ndarray:
            pushed = np.concatenate([stack[:, 1:], leaf[:, None]], axis=1)
            pushed[self.starts] = leaf[self.starts][:, None]
            return pushed

        if self.frames is None:
            return nested.map_leaves(lambda leaf: np.repeat(leaf[:, None], frames, axis=1), observations)
        return nested.map_leaves(push, observations, self.frames)
