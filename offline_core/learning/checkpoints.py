"""The policies that a training run saves: the best, the last, and the series."""

from __future__ import annotations

import copy

import torch

from offline_core.data.datasets.manifest import Operation, Parent
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.data.store.location import Location
from offline_core.learning.evaluations import Weights
from offline_core.policies.checkpoint import save_policy
from offline_core.policies.policy import Policy
from offline_core.policies.series import SERIES, UPDATES
from offline_core.runtime.config import EnvironmentSpec


class Checkpoints:
    """Saves weights of one run, with their lineage, to folders below `folder`."""

    def __init__(
        self,
        policy: Policy,
        folder: Location,
        operation: Operation,
        environment: EnvironmentSpec | None,
        parents: list[Parent],
        inputs: InputColumns | None = None,
    ) -> None:
        self.folder = folder
        self._policy = copy.deepcopy(policy)  # the policy itself goes on learning
        self._policy.input_columns = inputs
        self._operation = operation
        self._environment = environment
        self._parents = parents

    def save(self, name: str, weights: Weights, metrics: dict[str, float], *, updates: int) -> str:
        """Write or replace one checkpoint, of so many updates; return its URI."""
        self._policy.load_state_dict({key: torch.from_numpy(array) for key, array in weights.items()})
        uri = self.folder.child(name).uri
        save_policy(
            self._policy,
            uri,
            operation=self._operation,
            environment=self._environment,
            parents=self._parents,
            metrics={UPDATES: updates} | metrics,
        )
        return uri

    def delete(self, name: str) -> None:
        """Delete the checkpoint, or the folder of several."""
        self.folder.child(name).delete_folder()  # policy.json before its weights

    def clear_series(self) -> None:
        """Delete the series, which is of another run."""
        self.delete(SERIES)
