"""Emits the events of new datasets, which start the automations of deployments/automations.py."""

from __future__ import annotations

from prefect.events import emit_event

from offline_core.data.datasets.dataset import DatasetRef
from offline_core.runtime.stage import Event

RESOURCE = "offline.dataset"
"""What the resource ids of these events begin with; the dataset's URI follows."""


def announce(dataset: DatasetRef, event: Event) -> None:
    """Sends an event with the dataset's uri, version, fingerprint, episodes and steps as its payload.

    Also for a dataset that was there already: what is to come of it may not be.
    """
    emit_event(
        event,
        resource={"prefect.resource.id": f"{RESOURCE}.{dataset.uri}", "prefect.resource.name": str(dataset)},
        payload=dataset.model_dump(include={"uri", "version", "fingerprint", "episodes", "steps"}),
    )
