"""Where the numbers of a training run go: a JSON-lines file and TensorBoard."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from offline_core.storage.location import Location, storage_errors

log = logging.getLogger(__name__)


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
        board = folder.child("tensorboard")
        if board.is_folder():
            board.filesystem.delete_dir_contents(board.path)
        self._board = SummaryWriter(board.path)
        for record in self.records:
            self._show(record)

    def add(self, step: int, record: dict[str, Any]) -> None:
        """Numbers after `step` updates."""
        line = {"updates": step, **record}
        self.records.append(line)
        self._show(line)
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
