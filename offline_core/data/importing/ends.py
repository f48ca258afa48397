"""Whether a dataset comes from an import that lost its terminations."""

from __future__ import annotations

from collections import deque

from offline_core.data.datasets.dataset import Dataset, open_dataset
from offline_core.data.datasets.manifest import Manifest
from offline_core.errors import OfflineError

IMPORT = "import"
KEEPS_TERMINATIONS = 4
"""The first version of the import whose `last_new_obs: drop` keeps the ends that terminate."""
MAX_ANCESTORS = 200


def lost_terminations(dataset: Dataset) -> str | None:
    """Describe the import among the ancestors of a dataset that lost all terminations of its source; None if there is none.

    Terminations in rows that cannot be read do not count: a note reports them, and the flag itself may be corrupt.
    Ancestors that no longer exist are skipped.
    """
    waiting, seen = deque([dataset]), {(dataset.location.uri, dataset.manifest.version)}
    while waiting:
        child = waiting.popleft()
        if said := _lost(child.manifest):
            return f"{child.location.uri} version {child.manifest.version} {said}"
        for parent in child.manifest.parents:
            key = (parent.uri, parent.version or 0)
            if parent.kind != "dataset" or not parent.version or key in seen or len(seen) >= MAX_ANCESTORS:
                continue
            seen.add(key)
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
