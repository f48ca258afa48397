"""The policies that a training run saves: the best, the last, and those of every so many iterations."""

from __future__ import annotations

import copy

import torch

from offline_core.datasets.manifest import Operation, Parent
from offline_core.learning.evaluations import Weights
from offline_core.policies.checkpoint import save_policy
from offline_core.policies.policy import Policy
from offline_core.runtime.config import EnvironmentSpec
from offline_core.storage.location import Location
from offline_core.storage.storage_errors import storage_errors

_ITERATIONS = "iterations"


def iteration_name(updates: int) -> str:
    """Return the name of an iteration's checkpoint, below the run's folder."""
    return f"{_ITERATIONS}/{updates:09d}"


class Checkpoints:
    """Saves weights of one run, with their lineage, to folders below `folder`."""

    def __init__(
        self, policy: Policy, folder: Location, operation: Operation, environment: EnvironmentSpec | None, parents: list[Parent]
    ) -> None:
        self.folder = folder
        self._policy = copy.deepcopy(policy)  # the policy itself goes on learning
        self._operation = operation
        self._environment = environment
        self._parents = parents

    def save(self, name: str, weights: Weights, metrics: dict[str, float]) -> str:
        """Write or replace one checkpoint; return its URI."""
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

    def clear_iterations(self) -> None:
        """Delete the policies of iterations, which are of another run."""
        folder = self.folder.child(_ITERATIONS)
        for name in folder.files():
            folder.child(name).delete()
        if folder.is_folder():
            with storage_errors("delete", folder.uri):
                folder.filesystem.delete_dir(folder.path)
