"""A version of a dataset out of other datasets: found if it exists already, else written and committed.

An operation that decides over each episode alone reads only what is new: where an earlier version of its source has files in
common with this one, as versions of an append have, what it made of those is kept.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from offline_core.data.datasets.commit import find_version
from offline_core.data.datasets.copying import commit_copy
from offline_core.data.datasets.damage import unusable_files
from offline_core.data.datasets.data_file import FilesConfig
from offline_core.data.datasets.dataset import Dataset, open_version, versions
from offline_core.data.datasets.episode_index import places_of_ids
from offline_core.data.datasets.manifest import Operation
from offline_core.data.datasets.prepare import prepared
from offline_core.data.datasets.replacing import files_without, statistics_without
from offline_core.data.datasets.writer import WrittenFiles
from offline_core.data.episodes import columns
from offline_core.data.store.location import Location
from offline_core.errors import OfflineError

log = logging.getLogger(__name__)

Write: TypeAlias = Callable[[Location], tuple[WrittenFiles, Mapping[str, Any]]]
"""Writes files below a dataset's folder and returns them with the report of the operation."""


WritePart: TypeAlias = Callable[[Location, Dataset], WrittenFiles]
"""Writes below a dataset's folder what is made of a dataset that has some of the source's files."""
Report: TypeAlias = Callable[[WrittenFiles], Mapping[str, Any]]


def derive_by_file(
    output: str, operation: Operation, source: Dataset, write: WritePart, *, files: FilesConfig, report: Report
) -> tuple[Dataset, bool]:
    """As `derive`, for an operation whose result for an episode depends on nothing but that episode.

    What the newest version of `output` by the same operation has of files that the source still has stays as it is. Episodes
    of other files are taken out, and those of the source's new files follow. So the episodes are those of a derivation from
    all of the source; those that were replaced lie at the end.

    Arguments:
        files: of what is written again.
        report: of the operation, from all that the new version has.
    """
    if found := find_version(output, operation, [source.parent_entry]):
        return found, True
    with prepared(output) as root:
        earlier = _made_before(output, operation, source)
        if earlier is None:
            written = write(root, source)
        else:
            made, before = earlier
            gone, new = only_files(before, without=source), only_files(source, without=before)
            names = places_of_ids(gone)[columns.EPS_ID].to_list()
            places = places_of_ids(made) if names else None
            kept, removed = files_without(made, places, names, root, files)
            written = write(root, new)
            statistics = statistics_without(made, removed, written.statistics, [*kept, *written.files])
            written = WrittenFiles(written.format, [*kept, *written.files], statistics)
            log.info(
                "%s: read %d of the %d files of %s, as version %d is made of the others.",
                operation.name,
                len(new.manifest.files),
                len(source.manifest.files),
                source.ref.uri,
                made.manifest.version,
            )
        dataset = commit_copy(output, written, [source], operation=operation, report=report(written))
    log.info("%s: %s", operation.name, dataset.ref)
    return dataset, False


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


def derive(
    output: str, operation: Operation, sources: Sequence[Dataset], write: Write, *, may_reuse: bool = True
) -> tuple[Dataset, bool]:
    """The version of `output` that an operation makes of its sources, and whether it existed before.

    If `write` fails, no version is committed, and folders created for it are removed again.

    Arguments:
        may_reuse: False if the operation does not say all that decides what is written.
    """
    if may_reuse and (found := find_version(output, operation, [source.parent_entry for source in sources])):
        return found, True
    with prepared(output) as root:
        written, report = write(root)
        made = commit_copy(output, written, sources, operation=operation, report=report)
    log.info("%s: %s", operation.name, made.ref)
    return made, False
