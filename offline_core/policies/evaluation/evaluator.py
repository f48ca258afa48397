"""Play a policy while it is trained."""

from __future__ import annotations

import numpy as np
import torch

from offline_core.policies.policy import Policy
from offline_core.policies.rollouts.rollouts import Rollouts, rollouts
from offline_core.runtime.config import EnvironmentSpec
from offline_core.runtime.torch_settings import torch_threads


class Evaluator:
    """Plays the weights that it is sent with a policy of its own; in this process, or as a Ray actor."""

    def __init__(self, policy: Policy, environment: EnvironmentSpec, *, episodes: int, num_envs: int, seed: int) -> None:
        self._policy = policy.eval()
        self._environment = environment
        self._episodes = episodes
        self._num_envs = num_envs
        self._seed = seed

    def evaluate(self, weights: dict[str, np.ndarray]) -> Rollouts:
        """Play greedy episodes from the same starts each time. With one Torch thread the returns are the same everywhere."""
        self._policy.load_state_dict({name: torch.tensor(array) for name, array in weights.items()})
        with torch_threads(1):
            return rollouts(self._policy, self._environment, episodes=self._episodes, seed=self._seed, num_envs=self._num_envs)
