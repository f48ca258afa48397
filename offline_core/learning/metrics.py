"""Where the numbers of a training run go: a JSON-lines file and TensorBoard."""

from __future__ import annotations

import json
import logging
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from offline_core.storage.location import Location, storage_errors

log = logging.getLogger(__name__)

SECONDS_BETWEEN_PUTS = 30.0
"""Of TensorBoard's files, where they cannot be appended to."""


class MetricsLog:
    """One record an iteration, in `<folder>/metrics.jsonl` and TensorBoard files beside it.

    Arguments:
        kept: which records of an earlier try still hold; None: all of them go.
    """

    def __init__(self, folder: Location, *, kept: Callable[[dict[str, Any]], bool] | None = None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._file = folder.child("metrics.jsonl")
        self.records: list[dict[str, Any]] = []
        if kept is not None and self._file.is_file():
            self.records = [record for record in map(json.loads, self._file.read().decode().splitlines()) if kept(record)]
        self._board_place = folder.child("tensorboard")
        for name in self._board_place.files():
            self._board_place.child(name).delete()
        # TensorBoard appends, which only disks can: elsewhere its files are written beside, and put there now and then.
        self._scratch = None if self._board_place.is_local else tempfile.TemporaryDirectory(prefix="offline-tensorboard-")
        self._board = SummaryWriter(self._board_place.path if self._scratch is None else self._scratch.name)
        self._put_at = time.monotonic()
        for record in self.records:
            self._show(record)

    def add(self, step: int, record: dict[str, Any]) -> None:
        """Numbers after `step` updates."""
        line = {"updates": step, **record}
        self.records.append(line)
        self._show(line)
        if self._scratch is not None and time.monotonic() - self._put_at > SECONDS_BETWEEN_PUTS:
            self._board.flush()
            self._put()
        self.records.sort(key=lambda line: line["updates"])  # evaluations come late, and later still after a new start
        self._file.write("".join(json.dumps(line) + "\n" for line in self.records).encode())

    def _show(self, record: dict[str, Any]) -> None:
        with storage_errors("write", self._board.log_dir):
            for name, value in record.items():
                self._board.add_scalar(name, value, record["updates"])

    def close(self) -> None:
        """Writes what TensorBoard still has in memory."""
        try:
            self._board.close()
        except OSError as error:  # whoever could not write there either says it louder
            log.warning("TensorBoard's last numbers are not written: %s", error)
        if self._scratch is not None:
            self._put()
            self._scratch.cleanup()

    def _put(self) -> None:
        assert self._scratch is not None
        self._put_at = time.monotonic()
        for file in Path(self._scratch.name).iterdir():
            self._board_place.child(file.name).write(file.read_bytes())
