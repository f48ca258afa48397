"""Notes on the ends of imported episodes, and whether a dataset comes from an import that lost its terminations."""

from __future__ import annotations

from collections import deque

from offline_core.data.datasets.dataset import Dataset, open_dataset
from offline_core.data.datasets.manifest import Manifest
from offline_core.data.datasets.statistics import Statistics
from offline_core.data.importing.report import Counts
from offline_core.errors import OfflineError

IMPORT = "import"
KEEPS_TERMINATIONS = 4
"""The first version of the import whose `last_new_obs: drop` keeps the ends that terminate."""
MAX_ANCESTORS = 200


def notes_on_ends(counts: Counts, statistics: Statistics) -> list[str]:
    """Sentences on ends that are not what they were in the source; none if all are."""
    notes = []
    ends = counts.terminations - counts.time_limits
    if ends > statistics.terminated:
        quarantined = counts.quarantined_terminations
        of_these = f", {quarantined:,} of them in rows that cannot be read" if quarantined else ""
        notes.append(f"{ends - statistics.terminated:,} of {ends:,} terminations of the source are in no episode{of_these}.")
    if counts.final_observations:
        notes.append(
            f"{counts.final_observations:,} rows with is_last are no steps: they hold the observation after the last step, as "
            "in RLDS. If they are steps, map the column to dones instead."
        )
    if counts.dropped_last_steps:
        notes.append(
            f"{counts.dropped_last_steps:,} episodes that do not terminate lost their last step, as its next observation is "
            f"not known; {statistics.terminated:,} terminated ones are whole."
        )
    if counts.lone_rows:
        notes.append(
            f"{counts.lone_rows:,} rows are an episode each that terminates, as a click or an offer is: nothing says what "
            "follows. If something does, map it to new_obs, or what says where episodes end to dones or eps_id."
        )
    elif counts.repeated_last_obs:
        known = (
            f"The observation after {counts.repeated_last_obs:,} last steps is not in the source; the one before is repeated"
        )
        valued = counts.repeated_last_obs - statistics.terminated
        goes_on = (
            f", and what learns values uses it at {valued:,} of them, which do not terminate. If episodes end there by "
            "themselves, map what says so to dones"
        )
        notes.append(f"{known}{goes_on if valued > 0 else ''}.")
    return notes


def lost_terminations(dataset: Dataset) -> str | None:
    """The import that this dataset comes from in which all terminations of a source were lost; None if there is none.

    Terminations in rows that cannot be read do not count: a note reports them, and the flag itself may be corrupt.
    Ancestors that no longer exist are passed over.
    """
    waiting, seen = deque([dataset]), {(dataset.location.uri, dataset.manifest.version)}
    while waiting:
        found = waiting.popleft()
        if said := _lost(found.manifest):
            return f"{found.location.uri} version {found.manifest.version} {said}"
        for parent in found.manifest.parents:
            place = (parent.uri, parent.version or 0)
            if parent.kind != "dataset" or not parent.version or place in seen or len(seen) >= MAX_ANCESTORS:
                continue
            seen.add(place)
            try:
                ancestor = open_dataset(parent.uri, parent.version)
            except OfflineError:
                continue
            if ancestor.manifest.fingerprint == parent.fingerprint:
                waiting.append(ancestor)
    return None


def _lost(manifest: Manifest) -> str | None:
    operation = manifest.operation
    if operation.stage != IMPORT or manifest.statistics.terminated:
        return None
    counts = manifest.report.get("counts", {})
    if operation.version < KEEPS_TERMINATIONS:
        dropped = operation.config.get("episodes", {}).get("last_new_obs") == "drop" and counts.get("dropped_last_steps")
        return "was imported when last_new_obs: drop lost every termination" if dropped else None
    ends, quarantined = counts.get("terminations", 0) - counts.get("time_limits", 0), counts.get("quarantined_terminations", 0)
    return f"kept none of the {ends:,} terminations of its source" if ends > quarantined else None
