"""What is worth knowing of an import, in words: where it guessed, and where rows are not what they were."""

from __future__ import annotations

from offline_core.conversion.ends import notes_on_ends
from offline_core.conversion.report import Counts
from offline_core.storage.manifest import Statistics


def notes_on(counts: Counts, statistics: Statistics) -> list[str]:
    """A sentence or two on each; none if there is nothing."""
    return [*notes_on_ends(counts, statistics), *_notes_on_times(counts)]


def _notes_on_times(counts: Counts) -> list[str]:
    notes = []
    if counts.time_gaps:
        notes.append(
            f"{counts.time_gaps:,} times so much time lies between two steps of one id that another episode begins there; "
            f"{counts.shortest_time_gap:,.6g} (seconds, or the unit of t) at least. If these are no ends, set episodes.max_gap."
        )
    if counts.alternating_ids:
        notes.append(
            f"The steps of {counts.alternating_ids:,} ids alternate in time between files. If each file, folder or day numbers "
            "its episodes by itself, episodes of several are mixed: set episodes.ids_per."
        )
    return notes
