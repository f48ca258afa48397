"""Where the numbers of a training run go: a JSON-lines file and TensorBoard."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from offline_core.errors import StorageError
from offline_core.learning.state import TrainingState
from offline_core.storage.location import Location
from offline_core.storage.storage_errors import storage_errors

log = logging.getLogger(__name__)

Record = dict[str, Any]

METRICS_FILE = "metrics.jsonl"
"""In the folder of a run, a record a line."""

SECONDS_BETWEEN_PUTS = 30.0
"""Of files that grow with the run, where they can only be replaced as a whole."""


class MetricsLog:
    """One record an iteration, in `METRICS_FILE` below the folder and TensorBoard files beside it.

    The file is replaced, so it is whole whenever somebody looks: on a disk with each record, elsewhere with the first one,
    then now and then, and at the end. A run that is killed loses nothing: its states have what was `unwritten` by then.

    Arguments:
        after: where the run goes on from, whose records still hold; None: all that are there go.
    """

    def __init__(self, folder: Location, *, after: TrainingState | None = None) -> None:
        self._file = folder.child(METRICS_FILE)
        self._records: list[Record] = []
        self._unwritten: list[Record] = []
        if after is not None:
            written = self._file.read().decode().splitlines() if self._file.is_file() else []
            lines = dict.fromkeys((*written, *after.unwritten))  # some were written after that state
            self._records = _in_order(record for record in map(json.loads, lines) if after.covers(record))
            self._unwritten = list(map(json.loads, after.unwritten))
        self._put_at = -math.inf  # the first record replaces what this run does not go on from
        self._board = TensorBoard(folder.child("tensorboard"))
        for record in self._records:
            self._board.show(record)

    def add(self, step: int, record: Record) -> None:
        """Numbers after `step` updates.

        Raises:
            StorageError: they cannot be written.
        """
        line = {"updates": step, **record}
        self._records = _in_order((*self._records, line))
        self._unwritten.append(line)
        self._board.show(line)
        if self._file.is_local or time.monotonic() - self._put_at > SECONDS_BETWEEN_PUTS:
            self._write()
            self._board.put()

    @property
    def unwritten(self) -> list[str]:
        """Lines that are not in the file yet."""
        return list(map(json.dumps, self._unwritten))

    def _write(self) -> None:
        self._file.write("".join(json.dumps(line) + "\n" for line in self._records).encode())
        self._unwritten.clear()
        self._put_at = time.monotonic()

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Writes what is still in memory, unless that is what ended the run: a place that cannot be written."""
        is_there = not isinstance(error, StorageError)
        try:
            if self._unwritten and is_there:
                self._write()
        except StorageError as unwritten:
            is_there = False
            if error is None:
                raise
            log.warning("The last metrics are not written: %s", unwritten)  # what ended the run is the error to see
        finally:
            self._board.close(put=is_there)


def series(folder: Location, name: str) -> list[tuple[int, float]]:
    """(updates, value) of a number that the run in `folder` has written down; nothing if it has none of that name."""
    file = folder.child(METRICS_FILE)
    records = map(json.loads, file.read().splitlines() if file.is_file() else [])
    return [(record["updates"], record[name]) for record in records if name in record]


class TensorBoard:
    """A folder of TensorBoard files, empty at first.

    TensorBoard appends, which only disks can. Elsewhere its files are written on this machine, and `put` there; what goes
    wrong with that is a warning, for the same numbers are in the metrics.
    """

    def __init__(self, place: Location) -> None:
        from torch.utils.tensorboard import SummaryWriter

        for name in place.files():
            place.child(name).delete()
        self._place = place
        self._ending = contextlib.ExitStack()
        self._here = place.path
        if not place.is_local:
            self._here = self._ending.enter_context(tempfile.TemporaryDirectory(prefix="offline-tensorboard-"))
        self._writer = SummaryWriter(self._here)

    def show(self, record: Record) -> None:
        """Draws a record, with its `updates` as the step."""
        with storage_errors("write", self._here):
            for name, value in record.items():
                self._writer.add_scalar(name, value, record["updates"])

    def put(self) -> None:
        """Puts what was drawn so far where it can only be put as a whole; never raises."""
        if self._place.is_local:
            return
        try:
            with storage_errors("write", self._here):
                self._writer.flush()
            for file in Path(self._here).iterdir():
                self._place.child(file.name).write(file.read_bytes())
        except StorageError as error:
            log.warning("TensorBoard's numbers are not there yet: %s", error)

    def close(self, *, put: bool = True) -> None:
        """Writes what is still in memory; never raises.

        Arguments:
            put: where the files cannot be appended to, put them there once more.
        """
        with self._ending:
            try:
                self._writer.close()
            except OSError as error:  # whoever could not write there either says it louder
                log.warning("TensorBoard's last numbers are not written: %s", error)
            if put:
                self.put()


def _in_order(records: Iterable[Record]) -> list[Record]:
    """Evaluations come late, and later still after a new start."""
    return sorted(records, key=lambda record: record["updates"])
