"""Where the numbers of a training run go: a JSON-lines file and TensorBoard."""

from __future__ import annotations

import json
from typing import Any

from offline_core.storage.location import Location


class MetricsLog:
    """One record an iteration, kept in memory and written to `<folder>/metrics.jsonl` and TensorBoard files beside it."""

    def __init__(self, folder: Location) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.records: list[dict[str, Any]] = []
        self._file = folder.child("metrics.jsonl")
        self._board = SummaryWriter(folder.child("tensorboard").path)

    def add(self, step: int, record: dict[str, Any]) -> None:
        """Numbers after `step` updates."""
        self.records.append({"updates": step, **record})
        for name, value in record.items():
            self._board.add_scalar(name, value, step)

    def close(self) -> None:
        """Writes what is still in memory."""
        self._board.close()
        self._file.write("".join(json.dumps(record) + "\n" for record in self.records).encode())
