"""What an expert that was killed goes on from, besides its tensors."""

from __future__ import annotations

from pydantic import Field

from offline_core.data.datasets.manifest import FileEntry, Statistics
from offline_core.learning.online.ring_files import RowsFile
from offline_core.learning.state import SavedState

Line = dict[str, int | float]
"""A line of the metrics."""


class ExpertState(SavedState):
    """The progress of an expert."""

    env_steps: int = 0
    rollouts: int = 0
    seconds: float = 0.0
    """Of all runs so far."""
    lines: list[Line] = Field([])
    snapshots: list[float] = Field([])
    """The returns whose policies are there."""
    rollbacks: int = 0
    best: dict[str, float] = Field({})
    """Metrics of the best policy so far."""
    recorded: list[FileEntry] = Field([])
    """Files of the recording."""
    recorded_statistics: Statistics = Statistics()
    rows: list[RowsFile] = Field([])
    """Files of the ring."""
    ring_rows: int = 0
    """Rows that were written to the ring since the beginning."""
