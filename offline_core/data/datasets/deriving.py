"""What an operation makes of each episode alone, again: only what is new is read.

Where an earlier version of its source has files in common with this one, as versions of an append have, what it made of those
is kept.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias

from offline_core.data.datasets.damage import unusable_files
from offline_core.data.datasets.data_file import FilesConfig
from offline_core.data.datasets.dataset import Dataset, open_version, versions
from offline_core.data.datasets.episode_index import places_of_ids
from offline_core.data.datasets.manifest import Operation
from offline_core.data.datasets.replacing import files_without, statistics_without
from offline_core.data.datasets.writer import WrittenFiles
from offline_core.data.episodes import columns
from offline_core.data.store.location import Location
from offline_core.errors import OfflineError

log = logging.getLogger(__name__)

WritePart: TypeAlias = Callable[[Location, Dataset], WrittenFiles]
"""Writes below a dataset's folder what is made of a dataset that has some of the source's files."""


def written_by_file(
    output: str, root: Location, operation: Operation, source: Dataset, write: WritePart, *, files: FilesConfig
) -> WrittenFiles:
    """What an operation makes of a source, if its result for an episode depends on nothing but that episode.

    What the newest version of `output` by the same operation has of files that the source still has stays as it is. Episodes
    of other files are taken out, and those of the source's new files follow. So the episodes are those of a derivation from
    all of the source; those that were replaced lie at the end.

    Arguments:
        files: of what is written again.
    """
    if (earlier := _made_before(output, operation, source)) is None:
        return write(root, source)
    made, before = earlier
    gone, new = only_files(before, without=source), only_files(source, without=before)
    names = places_of_ids(gone)[columns.EPS_ID].to_list()
    places = places_of_ids(made) if names else None
    kept, removed = files_without(made, places, names, root, files)
    written = write(root, new)
    statistics = statistics_without(made, removed, written.statistics, [*kept, *written.files])
    log.info(
        "%s: read %d of the %d files of %s, as version %d is made of the others.",
        operation.name,
        len(new.manifest.files),
        len(source.manifest.files),
        source.ref.uri,
        made.manifest.version,
    )
    return WrittenFiles(written.format, [*kept, *written.files], statistics)


def only_files(dataset: Dataset, *, without: Dataset) -> Dataset:
    """The dataset as if it had only the files that another version of it has not."""
    others = {(entry.path, entry.sha256) for entry in without.manifest.files}
    return dataset.with_files(entry for entry in dataset.manifest.files if (entry.path, entry.sha256) not in others)


def _made_before(output: str, operation: Operation, source: Dataset) -> tuple[Dataset, Dataset] | None:
    """(the newest version by the same operation of an earlier version with some of the source's files, that version)."""
    location, own = Location.of(output), {entry.path for entry in source.manifest.files}
    for number in reversed(versions(output)):
        try:
            made = open_version(location, number)
            parents = made.manifest.parents
            if made.manifest.operation != operation or [parent.uri for parent in parents] != [source.location.uri]:
                continue
            before = open_version(source.location, parents[0].version or 0)
        except OfflineError:  # damaged, or deleted
            continue
        is_same = before.manifest.fingerprint == parents[0].fingerprint and before.manifest.format == source.manifest.format
        if is_same and own & {entry.path for entry in before.manifest.files} and not unusable_files(made):
            return made, before
    return None
