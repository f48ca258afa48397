"""What a part of an import does not put into episodes, and what it found besides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from offline_core.data.datasets.manifest import FileEntry
from offline_core.data.importing.late_rows import Late
from offline_core.data.importing.report import Unreadable


@dataclass
class Lost:
    """What cannot be imported."""

    unreadable: list[Unreadable] = field(default_factory=list)
    places: list[tuple[int, int]] = field(default_factory=list)
    """(file, row) of what could not be read."""
    clipped_actions: int = 0
    """Not lost, but changed: steps whose action lay outside the range they were recorded in."""
    without_partner: Counter[int] = field(default_factory=Counter)
    """By the number of the join, rows without one."""
    waiting: set[int] = field(default_factory=set)
    """Numbers of the files with such rows."""
    extras: dict[str, str] = field(default_factory=dict)
    """Columns of the source that are not mapped and cannot be kept, and why."""
    notes: list[str] = field(default_factory=list)
    """What readers took for granted, each once."""
    late: Late = field(default_factory=Late)
    """Nor these: episodes of the version before."""
    cuts: list[FileEntry] = field(default_factory=list)
    left_out: list[FileEntry] = field(default_factory=list)
    """Files for later appends, see `Remainder`."""

    def __iadd__(self, other: Lost) -> Lost:
        self.unreadable += other.unreadable
        self.places += other.places
        self.clipped_actions += other.clipped_actions
        self.without_partner += other.without_partner
        self.waiting |= other.waiting
        self.extras |= other.extras
        self.note(*other.notes)
        self.late += other.late
        self.cuts += other.cuts
        self.left_out += other.left_out
        return self

    def note(self, *notes: str | None) -> None:
        """Add what was not said yet."""
        self.notes += [note for note in dict.fromkeys(notes) if note is not None and note not in self.notes]

    def count(self, before: tuple[int, Sequence[int]], after: tuple[int, Sequence[int]]) -> None:
        """Add what was counted between two calls of `Preparation.counted`."""
        self.clipped_actions += after[0] - before[0]
        self.without_partner.update({i: b - a for i, (a, b) in enumerate(zip(before[1], after[1], strict=True)) if b > a})
