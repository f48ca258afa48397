"""A ring of steps on disk, in files that are written once: each save adds the rows since the last one."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence

import safetensors.torch
from pydantic import BaseModel, ConfigDict

from offline_core.data.store.location import Location
from offline_core.learning.online.ring import StepRing

log = logging.getLogger(__name__)


class RowsFile(BaseModel):
    """Some rows of a ring, the newest of which has no step yet: the first row of the next file."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    first: int
    """The number of the first row, counted from the beginning of the ring."""
    written: int
    """The number of the last row."""
    sha256: str


class RingFiles:
    """Saves a ring as the states of a run want it: what a state names is there as long as the state before it, too.

    Arguments:
        folder: of the states.
    """

    def __init__(self, folder: Location, ring: StepRing) -> None:
        self._folder, self._ring = folder, ring
        self._files: list[RowsFile] = []
        self._dropped: list[RowsFile] = []

    def save(self) -> list[RowsFile]:
        """Write the rows since the last call; return the files that hold what the ring holds."""
        for file in self._dropped:
            self._folder.child(file.name).delete()
        first = max(self._files[-1].written if self._files else 0, self._ring.first_row)
        data = safetensors.torch.save(self._ring.rows_from(first))
        sha256 = hashlib.sha256(data).hexdigest()
        name = f"steps-{first:012d}-{sha256[:12]}.safetensors"
        self._folder.child(name).write(data)
        self._files.append(RowsFile(name=name, first=first, written=self._ring.written, sha256=sha256))
        self._dropped = [file for file in self._files if file.written <= self._ring.first_row]
        self._files = [file for file in self._files if file not in self._dropped]
        return self._files

    def load(self, files: Sequence[RowsFile], *, written: int, steps: int) -> None:
        """Fill the ring with what `save` returned; the rows of a file that is damaged or missing are left out.

        Raises:
            StorageUnavailableError: the storage does not answer now.
        """
        names = set(self._folder.files(recursive=False))
        for file in files:
            data = self._folder.child(file.name).read() if file.name in names else b""
            if hashlib.sha256(data).hexdigest() == file.sha256:
                self._ring.put(file.first, safetensors.torch.load(data))
            else:
                self._ring.leave_out(file.first, file.written)
                log.warning(
                    "%s is damaged or missing; its steps are not learned from again.", self._folder.child(file.name).uri
                )
        self._ring.written, self._ring.steps, self._files = written, steps, list(files)
