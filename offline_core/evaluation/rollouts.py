"""Plays a policy in its environment and reports the returns of whole episodes, none preferred for being short."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from offline_core.config import EnvironmentSpec
from offline_core.environments import info_of, make_vector_env, shares
from offline_core.episodes import nested
from offline_core.episodes.metadata import SUCCESS_KEYS, success_of
from offline_core.episodes.nested import Nested
from offline_core.evaluation.config import NUM_ENVS
from offline_core.evaluation.metric import Metric, PlayedStep
from offline_core.policies.policy import Policy
from offline_core.seeding import derive_seed


@dataclass(frozen=True, slots=True)
class Rollouts:
    """Returns and lengths (steps) of played episodes, both of shape (episodes,)."""

    returns: np.ndarray
    lengths: np.ndarray
    successes: np.ndarray | None = None
    """Shape (episodes,), bool: see `success_of`, of the info of the last step; None if no episode's says anything."""

    @classmethod
    def joined(cls, parts: Sequence[Rollouts]) -> Rollouts:
        """All episodes of these, in this order."""
        told = [part.successes for part in parts]
        each = [np.zeros(len(part.returns), bool) if part.successes is None else part.successes for part in parts]
        return cls(
            np.concatenate([part.returns for part in parts]),
            np.concatenate([part.lengths for part in parts]),
            None if all(successes is None for successes in told) else np.concatenate(each),
        )

    @property
    def metrics(self) -> dict[str, float]:
        """Mean, standard deviation, minimum and maximum return, mean length, number of episodes; share of successes."""
        told = {} if self.successes is None else {"success_rate": float(self.successes.mean())}
        return {
            "episode_return_mean": float(self.returns.mean()),
            "episode_return_std": float(self.returns.std()),
            "episode_return_min": float(self.returns.min()),
            "episode_return_max": float(self.returns.max()),
            "episode_length_mean": float(self.lengths.mean()),
            "episodes": float(len(self.returns)),
            **told,
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
    """Plays exactly `episodes` episodes; which copy plays how many is fixed before the first step.

    The same (policy, environment, episodes, seed, explore, num_envs) gives the same returns. With another number of copies
    other episodes are played.

    Arguments:
        num_envs: copies of the environment, at most.
        on_ended: is given the number of episodes that ended, whenever some do.
        metrics: look at each step, and change nothing.

    Raises:
        ConfigError: the environment cannot be made, or this policy cannot play in it.
    """
    num_envs = min(num_envs, episodes)
    quota = shares(episodes, num_envs)
    generator = torch.Generator().manual_seed(derive_seed(seed, "actions"))
    env = make_vector_env(environment, num_envs)
    try:
        policy.check_spaces(environment.id, (env.single_observation_space, env.single_action_space))
        observations, _ = env.reset(seed=derive_seed(seed, "environment"))
        acting = policy.acting(num_envs)
        done, starts = np.zeros(num_envs, bool), np.ones(num_envs, bool)
        returns, lengths = np.zeros(num_envs), np.zeros(num_envs, int)
        finished: list[tuple[np.ndarray, np.ndarray]] = []
        successes: list[bool | None] = []
        after = _kept(observations) if metrics else None
        while quota.any():
            actions = (
                acting.act(observations, starts, explore=True, generator=generator).actions
                if explore
                else acting.greedy(observations, starts)
            )
            observations, rewards, terminated, truncated, infos = env.step(actions)
            starts, is_step = done, ~done  # a copy that was done resets now; that is no step of an episode
            if metrics:
                arrays = {"actions": actions, "rewards": rewards, "terminated": terminated, "truncated": truncated}
                arrays = _kept(arrays | {"counts": is_step & (quota > 0)})
                before, after = after, _kept(observations)
                step = PlayedStep(observations=before, next_observations=after, infos=infos, **arrays)
                for metric in metrics:
                    metric.look(step)
            returns += np.where(is_step, rewards, 0.0)
            lengths += is_step
            done = terminated | truncated
            if done.any():
                counts = done & (quota > 0)
                finished.append((returns[counts], lengths[counts]))
                said = {key: value for key, value in infos.items() if key.removeprefix("_") in SUCCESS_KEYS}
                successes += [success_of(info_of(said, int(copy))) for copy in np.flatnonzero(counts)]
                quota -= counts
                if on_ended:
                    on_ended(int(counts.sum()))
                returns[done] = 0.0
                lengths[done] = 0
    finally:
        env.close()
    return Rollouts(
        np.concatenate([r for r, _ in finished]),
        np.concatenate([n for _, n in finished]),
        None if successes.count(None) == len(successes) else np.array(successes, bool),
    )


def _kept(tree: Nested) -> Nested:
    """A copy that cannot be written to, for a vector environment may write the next step into the same arrays."""

    def copied(array: np.ndarray) -> np.ndarray:
        copy = np.array(array)
        copy.flags.writeable = False
        return copy

    return nested.map_leaves(copied, tree)
