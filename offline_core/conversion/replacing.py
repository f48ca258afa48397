"""What an import into a place that holds other episodes leaves out of the new version."""

from __future__ import annotations

import logging

from offline_core.episodes import columns
from offline_core.errors import OfflineError
from offline_core.storage.dataset import Dataset, open_version, versions
from offline_core.storage.episode_index import episode_index

log = logging.getLogger(__name__)


def replaced(dataset: Dataset) -> str | None:
    """What the version before holds and this one, the latest, does not; None if it holds all of that.

    Episodes are compared by their content. Where that cannot be read, the reason is a warning: the import itself is done.
    """
    version = dataset.manifest.version
    earlier = [number for number in versions(dataset.location.uri) if number < version]
    if dataset.latest is not None or not earlier:
        return None
    try:
        before = open_version(dataset.location, earlier[-1])
        held, holds = (episode_index(each, [columns.CONTENT]) for each in (before, dataset))
    except OfflineError as error:
        log.warning("It cannot be told what version %d of %s replaces: %s", version, dataset.location.uri, error)
        return None
    missing = len(held.filter(~held[columns.CONTENT].is_in(holds[columns.CONTENT].implode())))
    if not missing:
        return None
    of = ", ".join(parent.uri for parent in before.manifest.parents) or before.manifest.operation.name
    return (
        f"Version {version} replaces version {earlier[-1]}: {missing:,} episodes of {of} are not in it; "
        f"they stay readable as version {earlier[-1]}."
    )
