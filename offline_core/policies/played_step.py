"""A step of all copies of an environment, and the metrics that look at it."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from offline_core.data.episodes import nested
from offline_core.data.episodes.nested import Nested


class PlayedStep(NamedTuple):
    """One step of all copies of an environment at once. Metrics cannot write to its arrays, those of `infos` aside."""

    observations: Nested
    """Arrays of shape (envs, …): before the step, as the policy saw them."""
    next_observations: Nested
    """Arrays of shape (envs, …): after the step; after an episode's last step its final observation."""
    actions: Nested
    """Arrays of shape (envs, …), in the units of the environment."""
    rewards: np.ndarray
    """Shape (envs,)."""
    terminated: np.ndarray
    """Shape (envs,): the step reached a terminal state."""
    truncated: np.ndarray
    """Shape (envs,): the episode was truncated at the step."""
    infos: dict[str, Any]
    """Infos as gymnasium's vector environments give them: arrays by name; `_name` marks the copies that set it."""
    counts: np.ndarray
    """Shape (envs,): the copy's step belongs to an episode that counts. It does not where the copy only resets, one step
    after an end, and where the copy has played its share of episodes and others have not."""
    ends: np.ndarray
    """Shape (envs,): the step counts and is the last of its episode."""
    extras: dict[str, np.ndarray]
    """`action_dist_inputs` (envs, inputs) and `action_logp` (envs,) of the actions, where they are recorded."""

    def read_only(self) -> PlayedStep:
        """The same step with arrays that cannot be written to."""
        return PlayedStep(*nested.read_only(tuple(self._replace(infos={}))))._replace(infos=self.infos)


@runtime_checkable
class Metric(Protocol):
    """Sees every step of one evaluation, in order, then returns what it measured.

    The steps of a copy follow each other from call to call, one episode after the other.
    """

    def look(self, step: PlayedStep) -> None:
        """See one step of all copies."""

    def result(self) -> dict[str, float]:
        """The measurements over all steps: finite numbers by name."""
