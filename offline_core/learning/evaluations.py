"""Evaluations that run beside the training: sent off in order, collected in order, never more than two behind."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from offline_core.config import EnvironmentSpec
from offline_core.evaluation.rollouts import Rollouts
from offline_core.policies.policy import Policy
from offline_core.ray_session import fetch

MAX_PENDING = 2
GRACE_SECONDS = 10.0

Weights = dict[str, np.ndarray]


def snapshot(policy: Policy) -> Weights:
    """A copy of the policy's weights that further training does not touch."""
    return {name: tensor.numpy(force=True).copy() for name, tensor in policy.state_dict().items()}


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How the policy played after so many updates, and the weights that played."""

    updates: int
    weights: Weights
    rollouts: Rollouts


class Evaluations:
    """What is evaluated does not depend on how long it takes: all weights sent are played, the oldest first.

    The actor goes when this object goes.
    """

    def __init__(self, policy: Policy, environment: EnvironmentSpec, *, episodes: int, seed: int) -> None:
        import ray

        from offline_core.evaluation.evaluator import Evaluator

        self._policy = policy
        # No CPU is reserved: it works in bursts, and on a small machine the data pipeline needs the slots.
        self._actor = ray.remote(num_cpus=0, max_restarts=3, max_task_retries=3)(Evaluator).remote(
            policy, environment, episodes=episodes, seed=seed
        )
        self._pending: deque[tuple[int, Weights, Any]] = deque()

    def submit(self, updates: int, weights: Weights | None = None) -> None:
        """Sends weights off, the policy's present ones if none are given."""
        weights = snapshot(self._policy) if weights is None else weights
        self._pending.append((updates, weights, self._actor.evaluate.remote(weights)))

    @property
    def pending(self) -> list[tuple[int, Weights]]:
        """(updates, weights) of those under way."""
        return [(updates, weights) for updates, weights, _ in self._pending]

    def finished(self, *, wait: bool) -> Iterator[Evaluation]:
        """Evaluations that are done, in the order of their updates; all of them if `wait`, else those that need no wait
        or are more than `MAX_PENDING` behind.
        """
        import ray

        while self._pending:
            updates, weights, reference = self._pending[0]
            if not wait and len(self._pending) <= MAX_PENDING and not ray.wait([reference], timeout=0)[0]:
                return
            result = fetch(reference)
            self._pending.popleft()
            yield Evaluation(updates, weights, result)

    def close(self) -> None:
        """Waits a little for what is still being played, so that the actor does not die in the middle of it."""
        import ray

        if self._pending:
            ray.wait([reference for _, _, reference in self._pending], num_returns=len(self._pending), timeout=GRACE_SECONDS)
