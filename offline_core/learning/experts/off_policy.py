"""SAC and TD3 as an expert's learner: all that was played is learned from again and again."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
from gymnasium.vector import VectorEnv
from torch import Tensor

from offline_core.errors import ConfigError
from offline_core.learning.algorithms.registry import make_networks
from offline_core.learning.experts.config import ExpertConfig
from offline_core.learning.online.learner import OnlineLearner
from offline_core.learning.online.ring import StepRing
from offline_core.policies.policy import Policy
from offline_core.runtime.seeding import derive_seed


def off_policy_learner(config: ExpertConfig, env: VectorEnv) -> OffPolicyLearner:
    """Return a learner by the algorithm of `config`, with random weights.

    Raises:
        ConfigError: the algorithm cannot act in the environment, there is an `initial_policy`, or too little memory.
    """
    if config.initial_policy is not None:
        raise ConfigError(
            f"{config.algorithm} learns from nothing: a checkpoint has no critics, and new ones would undo it. Set "
            "initial_policy to None, algorithm to ppo, or go on from a training with 'offline fine-tune'."
        )
    check_actions(config, env.single_action_space)
    algorithm = make_networks(
        config.algorithm,
        env.single_observation_space,
        env.single_action_space,
        config.network,
        getattr(config, config.algorithm),
        seed=derive_seed(config.seed, "weights"),
    )
    online = OnlineLearner(algorithm, env, config.off_policy, seed=config.seed)
    return OffPolicyLearner(online, rollout_steps=config.rollout_steps)


def check_actions(config: ExpertConfig, space: gym.Space[Any]) -> None:
    """Check that an algorithm which learns from replayed steps can act in the environment.

    Raises:
        ConfigError: it cannot.
    """
    if not (isinstance(space, gym.spaces.Box) and space.is_bounded()):
        raise ConfigError(
            f"{config.algorithm} chooses continuous actions with bounds, and those of {config.environment.id} are {space}: set "
            "algorithm to ppo."
        )


class OffPolicyLearner:
    """Plays `rollout_steps` steps in each copy, then makes as many updates as are due."""

    def __init__(self, online: OnlineLearner, *, rollout_steps: int = 1) -> None:
        self._online, self._rollout_steps = online, rollout_steps

    @property
    def policy(self) -> Policy:
        """The policy that plays and learns."""
        return self._online.policy

    @property
    def ring(self) -> StepRing:
        """The steps that batches are drawn from."""
        return self._online.ring

    @property
    def env_steps(self) -> int:
        """Environment steps so far, without resets."""
        return self._online.env_steps

    @property
    def updates(self) -> int:
        """Updates so far."""
        return self._online.updates

    def advance(self, max_env_steps: int) -> None:
        """Play one rollout of so many environment steps at most, and make the updates that are due.

        Raises:
            LearningError: a loss is NaN or infinite.
        """
        self._online.play(min(self._rollout_steps, max_env_steps // self._online.env.num_envs))
        self._online.learn()

    def take_metrics(self) -> dict[str, float]:
        """Return the means of the algorithm's metrics over the updates since the last call."""
        return self._online.take_metrics()

    def state(self) -> dict[str, Tensor]:
        """Return the tensors that the next rollout depends on, besides the ring."""
        return self._online.state()

    def restore(self, state: dict[str, Tensor], *, env_steps: int, updates: int) -> None:
        """Go on from what `state` returned, with new episodes. The ring is there already."""
        self._online.restore(state, updates=updates)
