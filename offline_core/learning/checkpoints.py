"""The policies that a training run leaves: the best, the last, and those of every so many iterations."""

from __future__ import annotations

import copy

import torch

from offline_core.config import EnvironmentSpec
from offline_core.learning.evaluations import Weights
from offline_core.policies.checkpoint import save_policy
from offline_core.policies.policy import Policy
from offline_core.storage.location import Location
from offline_core.storage.manifest import Operation, Parent
from offline_core.storage.storage_errors import storage_errors

_KEPT = "iterations"


def kept_name(updates: int) -> str:
    """Of the checkpoint of an iteration, below the run's folder."""
    return f"{_KEPT}/{updates:09d}"


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

    def clear_kept(self) -> None:
        """Deletes the policies of iterations: they are of another run."""
        place = self.folder.child(_KEPT)
        for name in place.files():
            place.child(name).delete()
        if place.is_folder():
            with storage_errors("delete", place.uri):
                place.filesystem.delete_dir(place.path)
