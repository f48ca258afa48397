"""Whether the files of a version are still what was written, and when that was last looked at.

<uri>/_versions/000001.verified    when the hashes of all its files were last compared with the manifest
"""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from offline_core.errors import CorruptFileError, StorageError
from offline_core.storage.dataset import VERSIONS, Dataset, size_and_hash
from offline_core.storage.json_files import with_checksum, without_checksum
from offline_core.storage.location import Location
from offline_core.storage.manifest import FileEntry
from offline_core.storage.parquet_files import read_footer

log = logging.getLogger(__name__)

VERIFY_AFTER = timedelta(days=30)
"""What is reused was hashed no longer ago. Reading all bytes at every reuse would cost more than what is saved; disks, too, are
scrubbed once a month. Whatever is read meanwhile is verified page by page."""

THREADS = 8
"""Files that are looked at at once: they may be far away."""


def damaged_files(dataset: Dataset) -> dict[str, str]:
    """Compares the size and SHA-256 of all files of a version with its manifest: what is wrong, by path; reads every byte.

    If nothing is wrong, that is noted beside the manifest, for `unusable_files`.
    """
    wrong = _wrong(dataset, _wrong_content)
    if not wrong:
        _note(dataset)
    return wrong


def unusable_files(dataset: Dataset) -> dict[str, str]:
    """What is wrong, by path, with the files of a version that is about to be used instead of making it again.

    All have to be there, of the size that was written, with whole footers. Hashes are compared if that was last done longer
    ago than `VERIFY_AFTER`.
    """
    wrong = _wrong(dataset, _wrong_footer)
    if wrong or dataset.is_foreign or _is_fresh(dataset):
        return wrong
    log.info("%s was last verified over %d days ago: its files are hashed.", dataset.ref, VERIFY_AFTER.days)
    return damaged_files(dataset)


def missing_files(dataset: Dataset) -> dict[str, str]:
    """Files of this version that are not there, or of another size: what is wrong, by path."""
    present = dataset.location.sizes()
    return {
        file.path: "is not there" if file.path not in present else f"has {present[file.path]:,} bytes instead of {file.bytes:,}"
        for file in dataset.manifest.files
        if present.get(file.path) != file.bytes
    }


def _wrong(dataset: Dataset, look: Callable[[Dataset, FileEntry], str | None]) -> dict[str, str]:
    if missing := missing_files(dataset):
        return missing
    files = dataset.manifest.files
    with ThreadPoolExecutor(THREADS) as pool:
        found = pool.map(functools.partial(look, dataset), files)
        return {file.path: wrong for file, wrong in zip(files, found, strict=True) if wrong}


def _wrong_content(dataset: Dataset, file: FileEntry) -> str | None:
    _, sha256 = size_and_hash(dataset.location.child(file.path))
    return None if sha256 == file.sha256 else "is damaged: its SHA-256 is not the one that was written"


def _wrong_footer(dataset: Dataset, file: FileEntry) -> str | None:
    try:
        read_footer(dataset.location.child(file.path), file.footer_sha256)
    except CorruptFileError as error:
        return f"is damaged: {error}"
    return None


def _stamp(dataset: Dataset) -> Location:
    return dataset.location.child(f"{VERSIONS}/{dataset.manifest.version:06d}.verified")


def _is_fresh(dataset: Dataset) -> bool:
    """Its hashes were taken, or compared, no longer ago than `VERIFY_AFTER`."""
    if _is_recent(dataset.manifest.created_at):
        return True
    stamp = _stamp(dataset)
    try:
        return stamp.is_file() and _is_recent(_time_in(stamp))
    except (CorruptFileError, ValueError, KeyError, TypeError):  # then that is not known
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
    except StorageError as error:  # read-only data can be whole; it is hashed again next time
        log.info("That %s was verified is not noted: %s", dataset.ref, error)
