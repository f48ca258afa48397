"""The policies that a training run leaves: the best and the last."""

from __future__ import annotations

import copy

import torch

from offline_core.config import EnvironmentSpec
from offline_core.learning.evaluations import Weights
from offline_core.policies.checkpoint import save_policy
from offline_core.policies.policy import Policy
from offline_core.storage.location import Location
from offline_core.storage.manifest import Operation, Parent


class Checkpoints:
    """Writes weights of one run, with where they come from, to folders below `folder`."""

    def __init__(
        self, policy: Policy, folder: Location, operation: Operation, environment: EnvironmentSpec | None, parents: list[Parent]
    ) -> None:
        self.folder = folder
        self._policy = copy.deepcopy(policy)  # weights are written while the policy itself goes on learning
        self._operation = operation
        self._environment = environment
        self._parents = parents

    def save(self, name: str, weights: Weights, metrics: dict[str, float]) -> str:
        """Writes (or replaces) one checkpoint; its URI."""
        self._policy.load_state_dict({key: torch.from_numpy(array) for key, array in weights.items()})
        uri = self.folder.child(name).uri
        save_policy(
            self._policy,
            uri,
            operation=self._operation,
            environment=self._environment,
            parents=self._parents,
            metrics=metrics,
        )
        return uri
