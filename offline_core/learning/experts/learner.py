"""What trains an expert: it plays, learns from that, and can be stored and restored."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from offline_core.learning.online.ring import StepRing
from offline_core.policies.policy import Policy


class ExpertLearner(Protocol):
    """Improves one policy in place."""

    @property
    def policy(self) -> Policy:
        """The policy that plays and learns."""

    @property
    def ring(self) -> StepRing | None:
        """The steps that batches are drawn from; None: it learns from each rollout by itself."""

    @property
    def env_steps(self) -> int:
        """Environment steps so far, without resets."""

    @property
    def updates(self) -> int:
        """Updates so far."""

    def advance(self, max_env_steps: int) -> None:
        """Play one rollout of so many environment steps at most, and learn what is due.

        Raises:
            LearningError: a loss is NaN or infinite.
        """

    def take_metrics(self) -> dict[str, float]:
        """Return losses and the like since the last call."""

    def state(self) -> dict[str, Tensor]:
        """Return the tensors that the next rollout depends on, besides the ring."""

    def restore(self, state: dict[str, Tensor], *, env_steps: int, updates: int) -> None:
        """Go on from what `state` returned, with new episodes. The ring is there already."""
