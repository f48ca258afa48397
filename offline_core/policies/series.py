"""The series of policies that a training keeps: <training>/iterations/<updates>."""

from __future__ import annotations

from pydantic import Field

from offline_core.data.store.location import Location
from offline_core.policies.manifest import POLICY_FILE, read_policy_manifest
from offline_core.runtime.result import Part

SERIES = "iterations"
UPDATES = "updates"
"""The metric of a checkpoint that says how many updates made it."""


class KeptCheckpoint(Part):
    """One policy of a series."""

    updates: int
    checkpoint: str = Field(description="URI of the policy.")
    metrics: dict[str, float] = Field(description="Of its evaluation, or its held-out loss; empty if it was not measured.")


def series_name(updates: int) -> str:
    """Return the name of a checkpoint of the series, below the folder of its training."""
    return f"{SERIES}/{updates:09d}"


def series_of(training: Location) -> list[KeptCheckpoint]:
    """Return the series in the folder of a training, finished or not, in order; empty if none is kept.

    Raises:
        CheckpointError: One of its policies cannot be read.
    """
    folder = training.child(SERIES)
    series = []
    for name in saved_in(training):
        checkpoint = folder.child(name)
        if checkpoint.child(POLICY_FILE).is_file():
            metrics = read_policy_manifest(checkpoint.uri).metrics
            measured = {key: value for key, value in metrics.items() if key != UPDATES}
            series.append(KeptCheckpoint(updates=int(name), checkpoint=checkpoint.uri, metrics=measured))
    return series


def saved_in(training: Location) -> list[str]:
    """Return the folders of the series by name, in order, also those that are not whole."""
    names = {name.partition("/")[0] for name in training.child(SERIES).files()}
    return sorted(name for name in names if name.isdecimal())
