"""The actor that plays a policy while it is being trained."""

from __future__ import annotations

import numpy as np
import torch

from offline_core.config import EnvironmentSpec
from offline_core.evaluation.rollouts import Rollouts, rollouts
from offline_core.policies.policy import Policy


class Evaluator:
    """Made into a Ray actor by the training loop; holds a copy of the policy that takes on whatever weights it is sent."""

    def __init__(self, policy: Policy, environment: EnvironmentSpec, *, episodes: int, seed: int) -> None:
        torch.set_num_threads(1)
        self._policy = policy.eval()
        self._environment = environment
        self._episodes = episodes
        self._seed = seed

    def evaluate(self, weights: dict[str, np.ndarray]) -> Rollouts:
        """Greedy episodes, the same starts each time."""
        self._policy.load_state_dict({name: torch.tensor(array) for name, array in weights.items()})
        return rollouts(self._policy, self._environment, episodes=self._episodes, seed=self._seed)
