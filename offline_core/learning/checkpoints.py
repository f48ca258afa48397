"""What a training saves: policies (the best, the last, a series, the first at some returns), and all networks at its end.

With the networks (critics, targets, temperature) learning can go on by play.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Set as AbstractSet

import safetensors.torch
import torch
from torch import Tensor

from offline_core.data.datasets.manifest import Operation, Parent
from offline_core.data.store.location import Location
from offline_core.errors import CorruptFileError
from offline_core.learning.algorithms.networks import Networks
from offline_core.learning.evaluations import Weights
from offline_core.learning.result import NETWORKS_FILE
from offline_core.learning.state import read_tensors
from offline_core.policies.checkpoint import save_policy
from offline_core.policies.policy import Policy
from offline_core.policies.series import SERIES, UPDATES, saved_in, series_name
from offline_core.runtime.config import EnvironmentSpec

BEST, LAST = "best", "last"


class Checkpoints:
    """Saves weights of one run, with their lineage, to folders below `folder`.

    Arguments:
        policy: of the run, whose weights change.
        environment: of the policy, if it is known.
    """

    def __init__(
        self,
        policy: Policy,
        folder: Location,
        operation: Operation,
        environment: EnvironmentSpec | None,
        parents: list[Parent],
    ) -> None:
        self.folder = folder
        self._policy = copy.deepcopy(policy)  # the policy itself goes on learning
        self._operation = operation
        self._environment = environment
        self._parents = parents
        self._series = {int(name) for name in saved_in(folder)}

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

    def save_in_series(self, weights: Weights, metrics: dict[str, float], *, updates: int) -> None:
        """Write or replace the policy of the series that so many updates made."""
        self.save(series_name(updates), weights, metrics, updates=updates)
        self._series.add(updates)

    def keep_only(self, updates: AbstractSet[int]) -> None:
        """Delete all other policies of the series."""
        for number in sorted(self._series - updates):
            self.folder.child(series_name(number)).delete_folder()  # policy.json before its weights
        self._series &= updates

    def clear_series(self) -> None:
        """Delete the series, which is of another run."""
        self.folder.child(SERIES).delete_folder()
        self._series = set()


def save_networks(networks: Networks, folder: Location) -> str:
    """Write or replace them in the folder of a training; return their hash."""
    tensors = {name: tensor.detach().cpu().clone() for name, tensor in networks.state_dict().items()}  # some share memory
    data = safetensors.torch.save(tensors)
    folder.child(NETWORKS_FILE).write(data)
    return hashlib.sha256(data).hexdigest()


def load_networks(folder: Location, sha256: str) -> dict[str, Tensor]:
    """Return the networks of a training by name, (…) each.

    Raises:
        CorruptFileError: The file is missing or not the one that the training wrote.
    """
    file = folder.child(NETWORKS_FILE)
    networks = read_tensors(file, sha256)
    if networks is None:
        raise CorruptFileError(
            f"{file.uri} is not what the training wrote: delete result.json beside it and train again.", uri=file.uri
        )
    return networks
