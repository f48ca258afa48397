"""What a metric is, and what it looks at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from offline_core.episodes.nested import Nested


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PlayedStep:
    """One step of all copies of an environment at once. Arrays are copies that cannot be written to, those of `infos` aside."""

    observations: Nested
    """Arrays of shape (envs, …): what the policy saw, before the step."""
    next_observations: Nested
    """Arrays of shape (envs, …): after the step; after an episode's last step its last observation, which no policy sees."""
    actions: Nested
    """Arrays of shape (envs, …), in the units of the environment."""
    rewards: np.ndarray
    """Shape (envs,)."""
    terminated: np.ndarray
    """Shape (envs,): the step reached a terminal state."""
    truncated: np.ndarray
    """Shape (envs,): the episode was cut off at the step."""
    infos: dict[str, Any]
    """As gymnasium's vector environments give them: arrays by name, `_name` for which copies they are of."""
    counts: np.ndarray
    """Shape (envs,): the copy's step belongs to an episode that counts. It does not where the copy is reset (that step
    follows an end, and is none of any episode), and where it plays on because others have not played their share yet."""

    @property
    def ends(self) -> np.ndarray:
        """Shape (envs,): the step counts and is the last of its episode."""
        return np.asarray(self.counts & (self.terminated | self.truncated))


@runtime_checkable
class Metric(Protocol):
    """Looks at every step that is played, in order, then says what it measured; used for one evaluation only.

    The steps of a copy follow each other from call to call, one episode after the other.
    """

    def look(self, step: PlayedStep) -> None:
        """Takes in a step of all copies."""

    def result(self) -> dict[str, float]:
        """What all steps came to: finite numbers by name."""
