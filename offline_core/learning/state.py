"""The state of a training run on disk: all that is needed to go on as if nothing had happened. No pickle anywhere.

<output>/checkpoints/<updates>.json                  written last, at once: the state is what it names
<output>/checkpoints/<updates>-<hash>.safetensors    networks, normaliser, filter, optimiser, weights still being evaluated

Random numbers need no place: those of every process are functions of (seed, epoch, update, learner).
"""

from __future__ import annotations

import hashlib
import logging
from typing import Any, Literal, NamedTuple

import safetensors
import safetensors.torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from offline_core.errors import CorruptFileError
from offline_core.storage.json_files import reason_of, with_checksum, without_checksum
from offline_core.storage.location import Location
from offline_core.storage.storage_errors import storage_errors

log = logging.getLogger(__name__)

Metrics = dict[str, float]

READS: Literal[1] = 1
"""The format of states that is written here, and can be read."""


class Position(NamedTuple):
    """The next batch: of which chunk of which epoch."""

    epoch: int = 0
    chunk: int = 0
    batch: int = 0


class Report(NamedTuple):
    """Where the training stood."""

    updates: int
    steps: int
    loss: float
    """Mean since the report before."""


class TrainingState(BaseModel):
    """Where a run stands, but for its tensors."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="constants")

    state_version: Literal[1] = READS
    run: str
    """Of which run: a hash of all that decides what is learned."""
    streamed: bool = False
    """How the data is read, which its order depends on."""
    updates: int = 0
    steps: int = 0
    position: Position = Position()
    reports: list[Report] = []
    curve: list[tuple[int, float]] = []
    """(updates, mean return) of the evaluations that are done."""
    held_out: list[tuple[int, float]] = []
    """(updates, loss)."""
    watched: Metrics = {}
    """What the algorithm watches, in the last iteration."""
    best: tuple[int, Metrics] | None = None
    """(updates, metrics) of the policy in `best`."""
    evaluating: list[int] = []
    """Updates of the evaluations under way; their weights are among the tensors."""
    unwritten: list[str] = []
    """Lines of the metrics that are not in their file yet."""
    tensors_file: str = ""
    tensors_sha256: str = ""

    def covers(self, record: dict[str, Any]) -> bool:
        """A record of the metrics was written before this state, and will not be written again."""
        played_again = "episode_return_mean" in record and record["updates"] in self.evaluating
        measured_again = "held_out_loss" in record and record["updates"] not in {updates for updates, _ in self.held_out}
        return record["updates"] <= self.updates and not played_again and not measured_again


class States:
    """The states of one run, the last few of them.

    Arguments:
        folder: of the run; they are below `checkpoints`.
        keep: how many.
    """

    def __init__(self, folder: Location, *, run: str, keep: int = 2) -> None:
        self.run = run
        self._folder = folder.child("checkpoints")
        self._keep = keep

    def save(self, state: TrainingState, tensors: dict[str, Tensor]) -> None:
        """Writes the state, and deletes the oldest if there are too many."""
        data = safetensors.torch.save(tensors)
        sha256 = hashlib.sha256(data).hexdigest()
        name = f"{state.updates:09d}-{sha256[:12]}.safetensors"
        state = state.model_copy(update={"run": self.run, "tensors_file": name, "tensors_sha256": sha256})
        self._folder.child(name).write(data)
        self._folder.child(f"{state.updates:09d}.json").write(with_checksum(state.model_dump_json()))
        for old in self._named()[: -self._keep]:
            self._delete(old.removesuffix(".json"))

    def latest(self) -> tuple[TrainingState, dict[str, Tensor]] | None:
        """The newest whole state of this very run; None if there is none.

        Raises:
            StorageError: what is there cannot be read, which does not say that it is damaged.
        """
        names = self._folder.files(recursive=False)
        for place in [self._folder.child(name) for name in reversed(names) if name.endswith(".json")]:
            data = place.read()
            try:
                state = TrainingState.model_validate_json(without_checksum(data, place.uri))
            except CorruptFileError as error:
                log.warning("Cannot go on from a state: %s", error)
                continue
            except ValidationError as error:
                log.warning("Cannot go on from %s: %s", place.uri, reason_of(error, "state_version", READS))
                continue
            if state.run != self.run:
                continue
            tensors = self._folder.child(state.tensors_file).read() if state.tensors_file in names else b""
            if hashlib.sha256(tensors).hexdigest() == state.tensors_sha256:
                return state, safetensors.torch.load(tensors)
            log.warning("Cannot go on from %s: %s is damaged, or gone", place.uri, state.tensors_file)
        return None

    def clear(self) -> None:
        """Deletes all states: there is nothing to go on with."""
        self._delete("")
        if self._folder.is_folder():
            with storage_errors("delete", self._folder.uri):
                self._folder.filesystem.delete_dir(self._folder.path)

    def _named(self) -> list[str]:
        return [name for name in self._folder.files(recursive=False) if name.endswith(".json")]

    def _delete(self, prefix: str) -> None:
        for name in self._folder.files(recursive=False):
            if name.startswith(prefix):
                self._folder.child(name).delete()
