"""Where the numbers of a training run go: a JSON-lines file and TensorBoard."""

from __future__ import annotations

import json
from typing import Any

from offline_core.storage.location import Location


class MetricsLog:
    """One record an iteration, in `<folder>/metrics.jsonl` and TensorBoard files beside it; those of an earlier run go."""

    def __init__(self, folder: Location) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.records: list[dict[str, Any]] = []
        self._file = folder.child("metrics.jsonl")
        board = folder.child("tensorboard")
        if board.is_folder():
            board.filesystem.delete_dir_contents(board.path)
        self._board = SummaryWriter(board.path)

    def add(self, step: int, record: dict[str, Any]) -> None:
        """Numbers after `step` updates."""
        self.records.append({"updates": step, **record})
        for name, value in record.items():
            self._board.add_scalar(name, value, step)
        self._file.write("".join(json.dumps(line) + "\n" for line in self.records).encode())

    def close(self) -> None:
        """Writes what TensorBoard still has in memory."""
        self._board.close()
