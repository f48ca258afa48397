"""Play a policy in its environment and measure the returns of whole episodes, without preferring short ones."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from offline_core.data.environments.vector_env import NUM_ENVS, info_of, make_vector_env, shares
from offline_core.data.episodes.index import SUCCESS_KEYS, success_of
from offline_core.policies.policy import Policy
from offline_core.policies.rollouts.loop import EnvironmentLoop
from offline_core.policies.rollouts.metric import Metric
from offline_core.runtime.config import EnvironmentSpec


@dataclass(frozen=True, slots=True)
class Rollouts:
    """Returns and lengths (steps) of played episodes, both of shape (episodes,)."""

    returns: np.ndarray
    lengths: np.ndarray
    successes: np.ndarray | None = None
    """Shape (episodes,), bool: `success_of` the info of each last step; None: no episode's info has it."""

    @classmethod
    def joined(cls, parts: Sequence[Rollouts]) -> Rollouts:
        """Join the episodes of all parts, in this order."""
        successes = [np.zeros(len(part.returns), bool) if part.successes is None else part.successes for part in parts]
        return cls(
            np.concatenate([part.returns for part in parts]),
            np.concatenate([part.lengths for part in parts]),
            None if all(part.successes is None for part in parts) else np.concatenate(successes),
        )

    @property
    def metrics(self) -> dict[str, float]:
        """Mean, standard deviation, minimum and maximum return, mean length, number of episodes, success rate."""
        success = {} if self.successes is None else {"success_rate": float(self.successes.mean())}
        return {
            "episode_return_mean": float(self.returns.mean()),
            "episode_return_std": float(self.returns.std()),
            "episode_return_min": float(self.returns.min()),
            "episode_return_max": float(self.returns.max()),
            "episode_length_mean": float(self.lengths.mean()),
            "episodes": float(len(self.returns)),
            **success,
        }


def rollouts(
    policy: Policy,
    environment: EnvironmentSpec,
    *,
    episodes: int,
    seed: int,
    explore: bool = False,
    num_envs: int = NUM_ENVS,
    on_ended: Callable[[int], object] | None = None,
    metrics: Sequence[Metric] = (),
) -> Rollouts:
    """Play exactly `episodes` episodes; each copy's share is fixed before the first step.

    The same (policy, environment, episodes, seed, explore, num_envs) gives the same returns; another
    number of copies plays other episodes.

    Arguments:
        num_envs: copies of the environment, at most.
        on_ended: called with the number of episodes that ended in a step.
        metrics: see each step.

    Raises:
        ConfigError: the environment cannot be made, or its spaces do not fit the policy.
    """
    num_envs = min(num_envs, episodes)
    with contextlib.closing(make_vector_env(environment, num_envs)) as env:
        policy.check_spaces(f"environment {environment.id}", (env.single_observation_space, env.single_action_space))
        returns, lengths = np.zeros(num_envs), np.zeros(num_envs, int)
        finished: list[tuple[np.ndarray, np.ndarray]] = []
        successes: list[bool | None] = []
        for step in EnvironmentLoop(env, policy, seed=seed, explore=explore, quota=shares(episodes, num_envs)):
            if metrics:
                shown = step.read_only()
                for metric in metrics:
                    metric.look(shown)
            returns += np.where(step.counts, step.rewards, 0.0)
            lengths += step.counts
            if (ends := step.ends).any():
                finished.append((returns[ends], lengths[ends]))
                said = {key: value for key, value in step.infos.items() if key.removeprefix("_") in SUCCESS_KEYS}
                successes += [success_of(info_of(said, int(copy))) for copy in np.flatnonzero(ends)]
                if on_ended:
                    on_ended(int(ends.sum()))
                returns[ends] = 0.0
                lengths[ends] = 0
    return Rollouts(
        np.concatenate([r for r, _ in finished]),
        np.concatenate([n for _, n in finished]),
        None if successes.count(None) == len(successes) else np.array(successes, bool),
    )
