"""Check that the files of a version are what was written, and remember when.

<uri>/_versions/000001.verified    time of the last comparison of all file hashes with the manifest
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from offline_core.data.datasets.catalogue import read_catalogue
from offline_core.data.datasets.dataset import VERSIONS, Dataset, size_and_hash
from offline_core.data.datasets.manifest import FileEntry, digest
from offline_core.data.store.json_files import with_checksum, without_checksum
from offline_core.data.store.location import Location
from offline_core.data.store.parquet_files import open_parquet, read_footer
from offline_core.errors import CorruptFileError, DataError, StorageError
from offline_core.runtime.prefetch import several

log = logging.getLogger(__name__)

VERIFY_AFTER = timedelta(days=30)
"""Reused files are hashed again after this time, as disks are scrubbed monthly. Each read in between verifies its pages."""


def damaged_files(dataset: Dataset) -> dict[str, str]:
    """Problems of the files of a version by path, from comparing size and SHA-256 with the manifest; reads every byte.

    Without problems the time is stored next to the manifest, for `unusable_files`.
    """
    wrong = _wrong(dataset, _wrong_content)
    if not wrong:
        _note(dataset)
    return wrong


def unusable_files(dataset: Dataset) -> dict[str, str]:
    """Problems, by path, of the files of a version that is about to be reused.

    All files must exist with the size and footer that were written. Hashes are compared if the last comparison is older than
    `VERIFY_AFTER`.
    """
    wrong = _wrong(dataset, _wrong_footer)
    if wrong or dataset.is_foreign or _is_fresh(dataset):
        return wrong
    log.info("%s was last verified over %d days ago: its files are hashed.", dataset.ref, VERIFY_AFTER.days)
    return damaged_files(dataset)


def state_of(dataset: Dataset) -> str:
    """Identifies the content of a version and its files as they are on the storage: their sizes and times of change.

    While it is the same, the files were not written again since.
    """
    states = read_catalogue(dataset.location).files
    files = [[file.path, *states.get(file.path, ())] for file in dataset.manifest.all_files]
    return digest([dataset.manifest.fingerprint, sorted(files)])


def missing_files(dataset: Dataset) -> dict[str, str]:
    """Problems of files that are missing or of another size, by path."""
    present = dataset.location.sizes()
    return {
        file.path: "is missing" if file.path not in present else f"has {present[file.path]:,} bytes instead of {file.bytes:,}"
        for file in dataset.manifest.all_files
        if present.get(file.path) != file.bytes
    }


def _wrong(dataset: Dataset, look: Callable[[Dataset, FileEntry], str | None]) -> dict[str, str]:
    if missing := missing_files(dataset):
        return missing
    files = dataset.manifest.all_files
    reasons = several(functools.partial(look, dataset), files)
    return {file.path: wrong for file, wrong in zip(files, reasons, strict=True) if wrong}


def _wrong_content(dataset: Dataset, file: FileEntry) -> str | None:
    _, sha256 = size_and_hash(dataset.location.child(file.path))
    if sha256 != file.sha256:
        return "is damaged: its SHA-256 differs from the manifest"
    return _unreadable(dataset.location.child(file.path))


def _unreadable(location: Location) -> str | None:
    """Return why a file that is as the manifest says cannot be read; None if it can."""
    try:
        open_parquet(location).close()
    except DataError as error:
        return f"is not read: {error}"
    return None


def _wrong_footer(dataset: Dataset, file: FileEntry) -> str | None:
    try:
        read_footer(dataset.location.child(file.path), file.footer_sha256)
    except CorruptFileError as error:
        return f"is damaged: {error}"
    return None


def _stamp(dataset: Dataset) -> Location:
    return dataset.location.child(f"{VERSIONS}/{dataset.manifest.version:06d}.verified")


def _is_fresh(dataset: Dataset) -> bool:
    """Whether its hashes were computed or compared within `VERIFY_AFTER`."""
    if _is_recent(dataset.manifest.created_at):
        return True
    stamp = _stamp(dataset)
    try:
        return stamp.is_file() and _is_recent(_time_in(stamp))
    except (CorruptFileError, ValueError, KeyError, TypeError):  # unknown, so not fresh
        return False


def _time_in(stamp: Location) -> datetime:
    return datetime.fromisoformat(json.loads(without_checksum(stamp.read(), stamp.uri))["verified_at"])


def _is_recent(time: datetime) -> bool:
    return timedelta(0) <= datetime.now(UTC) - time <= VERIFY_AFTER


def _note(dataset: Dataset) -> None:
    if dataset.is_foreign:
        return
    try:
        _stamp(dataset).write(with_checksum(json.dumps({"verified_at": datetime.now(UTC).isoformat()})))
    except StorageError as error:  # read-only data may be intact; it is hashed again next time
        log.info("%s is verified, but the time could not be stored: %s", dataset.ref, error)
