"""Where the numbers of a training run go: a JSON-lines file and TensorBoard."""

from __future__ import annotations

import contextlib
import json
import logging
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from offline_core.errors import StorageError
from offline_core.storage.location import Location, storage_errors

log = logging.getLogger(__name__)

Record = dict[str, Any]

SECONDS_BETWEEN_PUTS = 30.0
"""Of TensorBoard's files, where they cannot be appended to."""


class MetricsLog:
    """One record an iteration, in `<folder>/metrics.jsonl` and TensorBoard files beside it.

    The file is replaced with each record, so it is whole whenever somebody looks, and a run that is killed loses nothing.

    Arguments:
        kept: which records of an earlier try still hold; None: all of them go.
    """

    def __init__(self, folder: Location, *, kept: Callable[[Record], bool] | None = None) -> None:
        self._file = folder.child("metrics.jsonl")
        self.records: list[Record] = []
        if kept is not None and self._file.is_file():
            self.records = [record for record in map(json.loads, self._file.read().decode().splitlines()) if kept(record)]
        self._board = TensorBoard(folder.child("tensorboard"))
        for record in self.records:
            self._board.show(record)

    def add(self, step: int, record: Record) -> None:
        """Numbers after `step` updates.

        Raises:
            StorageError: they cannot be written.
        """
        line = {"updates": step, **record}
        self.records.append(line)
        self.records.sort(key=lambda line: line["updates"])  # evaluations come late, and later still after a new start
        self._file.write("".join(json.dumps(line) + "\n" for line in self.records).encode())
        self._board.show(line)

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Writes what TensorBoard still has in memory, unless that is what ended the run: a place that cannot be written."""
        self._board.close(put=not isinstance(error, StorageError))


class TensorBoard:
    """A folder of TensorBoard files, empty at first.

    TensorBoard appends, which only disks can. Elsewhere its files are written on this machine, and put there now and then;
    what goes wrong with that is a warning, for the same numbers are in the metrics.
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
        self._put_at = time.monotonic()

    def show(self, record: Record) -> None:
        """Draws a record, with its `updates` as the step."""
        with storage_errors("write", self._here):
            for name, value in record.items():
                self._writer.add_scalar(name, value, record["updates"])
            if not self._place.is_local and time.monotonic() - self._put_at > SECONDS_BETWEEN_PUTS:
                self._writer.flush()
                self._put()

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
            if put and not self._place.is_local:
                self._put()

    def _put(self) -> None:
        self._put_at = time.monotonic()
        try:
            for file in Path(self._here).iterdir():
                self._place.child(file.name).write(file.read_bytes())
        except StorageError as error:
            log.warning("TensorBoard's numbers are not there yet: %s", error)
