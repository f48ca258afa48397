"""Evaluations that run beside the training: submitted and collected in order, at most two behind."""

from __future__ import annotations

import contextlib
import copy
import logging
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from offline_core.data.environments.vector_env import shares
from offline_core.errors import ClusterError
from offline_core.learning.config import EvaluationDuringTraining
from offline_core.learning.trainer_config import EvaluationsConfig
from offline_core.policies.policy import Policy
from offline_core.policies.rollouts import Rollouts, rollouts
from offline_core.runtime.config import EnvironmentSpec
from offline_core.runtime.ray_session import fetch, ray_session
from offline_core.runtime.seeding import derive_seed
from offline_core.runtime.torch_settings import torch_threads

MAX_PENDING = 2
GRACE_SECONDS = 10.0
QUICK_SECONDS = 2.0
"""Longer evaluations are worth an actor, which takes about as long to start."""

log = logging.getLogger(__name__)

Weights = dict[str, np.ndarray]
Stamp = dict[str, int]
"""When it was: `updates` so far, and of a run that plays `env_steps`."""


def snapshot(policy: Policy) -> Weights:
    """Return a copy of the policy's weights."""
    return {name: tensor.numpy(force=True).copy() for name, tensor in policy.state_dict().items()}


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The rollouts of a policy, and its weights."""

    stamp: Stamp
    weights: Weights
    rollouts: Rollouts


class Evaluations:
    """Plays all submitted weights, the oldest first, whatever it takes.

    By default this process plays as long as that is quick, which saves the start of an actor and of Ray. From the first
    evaluation that took long, an actor plays beside the training, unless Ray cannot start; the returns are the same.
    Several actors share the episodes of an evaluation. Actors end when this object is closed.

    Raises:
        ClusterError: Actors are configured and Ray cannot start.
    """

    def __init__(self, policy: Policy, environment: EnvironmentSpec, config: EvaluationsConfig, *, seed: int) -> None:
        self._policy = policy
        own = copy.deepcopy(policy).cpu()
        beside = config if isinstance(config, EvaluationDuringTraining) else EvaluationDuringTraining(location="process")
        quotas = shares(config.episodes, min(beside.actors, config.episodes)).tolist()
        self._made = [
            partial(
                Evaluator,
                own,
                environment,
                episodes=quota,
                num_envs=max(1, config.num_envs // len(quotas)),
                seed=derive_seed(seed, "actor", number) if number else seed,
                explore=config.actions == "sampled",
            )
            for number, quota in enumerate(quotas)
        ]
        self._evaluator = self._made[0]()
        self._actors: list[Any] = []
        self._may_move = beside.location == "auto"
        self._ray = contextlib.ExitStack()
        self._pending: deque[tuple[Stamp, Weights, Any]] = deque()
        if beside.location == "actor" or len(quotas) > 1:
            self._start_actors()

    def submit(self, stamp: Stamp, weights: Weights | None = None) -> None:
        """Submit weights, by default the policy's present ones."""
        weights = snapshot(self._policy) if weights is None else weights
        if self._actors:
            import ray

            stored = ray.put(weights)
            self._pending.append((stamp, weights, [actor.evaluate.remote(stored) for actor in self._actors]))
            return
        begin = time.perf_counter()
        self._pending.append((stamp, weights, self._evaluator.evaluate(weights)))
        if self._may_move and time.perf_counter() - begin > QUICK_SECONDS:
            self._move()

    def _move(self) -> None:
        """Move to an actor. It is tried once, as a failed start of Ray may take a minute."""
        self._may_move = False
        try:
            self._start_actors()
        except ClusterError as error:
            log.warning(
                "Ray cannot start, so the training plays the policy in its own process and waits for it. Set "
                "evaluation.location=process to do so from the start. Ray's error: %s",
                error,
            )

    def _start_actors(self) -> None:
        import ray

        self._ray.enter_context(ray_session())
        # They reserve no CPU: they work in bursts, and on a small machine the data pipeline needs the slots.
        remote = ray.remote(num_cpus=0, max_restarts=3, max_task_retries=3)(Evaluator).remote
        self._actors = [remote(*made.args, **made.keywords) for made in self._made]

    @property
    def pending(self) -> list[tuple[Stamp, Weights]]:
        """Stamps and weights of the unfinished evaluations."""
        return [(stamp, weights) for stamp, weights, _ in self._pending]

    def finished(self, *, wait: bool) -> Iterator[Evaluation]:
        """Yield finished evaluations in their order.

        Arguments:
            wait: for all; else only for those more than `MAX_PENDING` behind.
        """
        while self._pending:
            stamp, weights, result = self._pending[0]
            if not isinstance(result, Rollouts):
                import ray

                done, _ = ray.wait(result, num_returns=len(result), timeout=0)
                if not wait and len(self._pending) <= MAX_PENDING and len(done) < len(result):
                    return
                result = Rollouts.joined([fetch(part) for part in result])
            self._pending.popleft()
            yield Evaluation(stamp, weights, result)

    def close(self) -> None:
        """Wait shortly for unfinished evaluations, so that actors do not end amid them, and end the actors."""
        references = [part for _, _, result in self._pending if not isinstance(result, Rollouts) for part in result]
        if references:
            import ray

            ray.wait(references, num_returns=len(references), timeout=GRACE_SECONDS)
        self._actors = []
        self._ray.close()


class Evaluator:
    """Plays the weights that it is sent with a policy of its own; in this process, or as a Ray actor.

    Arguments:
        how: further arguments of `rollouts`. From the same seed it plays from the same starts each time.
    """

    def __init__(self, policy: Policy, environment: EnvironmentSpec, **how: Any) -> None:
        self._policy = policy.eval()
        self._rollouts = partial(rollouts, self._policy, environment, **how)

    def evaluate(self, weights: Weights) -> Rollouts:
        """Play with these weights. With one Torch thread the returns are the same everywhere."""
        self._policy.load_state_dict({name: torch.tensor(array) for name, array in weights.items()})
        with torch_threads(1):
            return self._rollouts()
