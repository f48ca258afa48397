"""The state of a training run on disk: what a resumed run needs to end as an unbroken one. No pickles.

<output>/checkpoints/<progress>.json                 written last, atomically; it names the tensors
<output>/checkpoints/<progress>-<hash>.safetensors   networks, normaliser, filter, optimiser, weights still being evaluated

Its size does not grow with the run: what was reported is in the metrics. Random numbers are not stored: those of every
process are functions of (seed, epoch, update, learner).
"""

from __future__ import annotations

import hashlib
import logging
from typing import Any, Literal

import safetensors.torch
from pydantic import Field, ValidationError
from torch import Tensor

from offline_core.data.datasets.result_cache import STATES
from offline_core.data.store.json_files import reason_of, with_checksum, without_checksum
from offline_core.data.store.location import Location
from offline_core.errors import CorruptFileError
from offline_core.runtime.result import StoredModel

log = logging.getLogger(__name__)

Metrics = dict[str, float]

STATE_VERSION: Literal[4] = 4
"""The format that is written and read."""
STATES_KEPT = 2
"""If the last state is damaged, the run resumes from the one before."""


class TrainingState(StoredModel):
    """The progress of a run, without its tensors."""

    state_version: Literal[4] = STATE_VERSION
    run: str = ""
    """Identity of the run: a hash of all that decides what is learned."""
    tensors_file: str = ""
    tensors_sha256: str = ""
    updates: int = 0
    steps: int = 0
    """Learned from, each as often as it was."""
    progress: int = 0
    """Updates, or the environment steps of a policy that plays."""
    iterations: int = 0
    seconds: float = 0.0
    """Of all runs so far."""
    experience: dict[str, Any] = Field({})
    """Where the steps go on, see `Experience.save`."""
    metrics: Metrics = Field({})
    """Of the algorithm, in the last iteration."""
    best: tuple[int, Metrics] | None = None
    """(progress, metrics) of the policy in `best`."""
    best_updates: int = 0
    """That made it."""
    evaluated: int = -1
    """Progress at the last evaluation that was collected; -1: there was none."""
    held_out: int = -1
    """Progress at the last held-out loss."""
    snapshots: list[float] = Field([])
    """The returns whose policies are stored."""
    rollbacks: int = 0
    evaluating: list[dict[str, int]] = Field([])
    """Stamps of the unfinished evaluations, whose weights are among the tensors."""
    unwritten: list[str] = Field([])
    """Lines of the metrics that are in no file yet."""


class States:
    """The last states of one run.

    Arguments:
        folder: of the run; states are below `STATES`.
        run: its identity.
    """

    def __init__(self, folder: Location, *, run: str) -> None:
        self.run = run
        self.folder = folder.child(STATES)

    def save(self, state: TrainingState, tensors: dict[str, Tensor]) -> None:
        """Write a state, and delete those before the last few."""
        name, sha256 = write_tensors(self.folder, f"{state.progress:012d}", tensors)
        state = state.model_copy(update={"run": self.run, "tensors_file": name, "tensors_sha256": sha256})
        self.folder.child(f"{state.progress:012d}.json").write(with_checksum(state.model_dump_json()))
        for old in self._named()[:-STATES_KEPT]:
            self._delete(old.removesuffix(".json"))

    def latest(self) -> tuple[TrainingState, dict[str, Tensor]] | None:
        """Return the newest undamaged state of this run, or None.

        Raises:
            StorageError: A file cannot be read, which does not say that it is damaged.
        """
        for file in map(self.folder.child, reversed(self._named())):
            data = file.read()
            try:
                state = TrainingState.model_validate_json(without_checksum(data, file.uri))
            except CorruptFileError as error:
                log.warning("Cannot resume from a state: %s", error)
                continue
            except ValidationError as error:
                log.warning("Cannot resume from %s: %s", file.uri, reason_of(error, "state_version", STATE_VERSION))
                continue
            if state.run != self.run:
                continue
            tensors = read_tensors(self.folder.child(state.tensors_file), state.tensors_sha256)
            if tensors is not None:
                return state, tensors
            log.warning("Cannot resume from %s: %s is damaged or missing", file.uri, state.tensors_file)
        return None

    def clear(self) -> None:
        """Delete all states."""
        self.folder.delete_folder()

    def _named(self) -> list[str]:
        return [name for name in self.folder.files(recursive=False) if name.endswith(".json")]

    def _delete(self, prefix: str) -> None:
        for name in self.folder.files(recursive=False):
            if name.startswith(prefix):
                self.folder.child(name).delete()


def write_tensors(folder: Location, stem: str, tensors: dict[str, Tensor]) -> tuple[str, str]:
    """Write tensors to a file of their own, whose name ends with their hash; return its name and the hash."""
    data = safetensors.torch.save(tensors)
    sha256 = hashlib.sha256(data).hexdigest()
    name = f"{stem}-{sha256[:12]}.safetensors"
    folder.child(name).write(data)
    return name, sha256


def read_tensors(file: Location, sha256: str) -> dict[str, Tensor] | None:
    """Return the tensors of a file; None if it is missing, or not the one with this hash.

    Raises:
        StorageError: It cannot be read, which does not say that it is damaged.
    """
    data = file.read() if file.is_file() else b""
    return safetensors.torch.load(data) if hashlib.sha256(data).hexdigest() == sha256 else None


def below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names begin so, without that."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
