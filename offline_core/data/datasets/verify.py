"""Compare versions, checkpoints, training states and results with the hashes that were written with them."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from offline_core.data.datasets.damage import damaged_files
from offline_core.data.datasets.dataset import VERSIONS, open_version, size_and_hash, versions
from offline_core.data.datasets.result_cache import RESULT_FILE
from offline_core.data.store.json_files import without_checksum
from offline_core.data.store.location import Location
from offline_core.data.store.stores import TEMPORARY
from offline_core.errors import DatasetNotFoundError, OfflineError, VersionNotFoundError

_TENSORS = ("weights", "tensors")
"""A JSON file names these files by `<name>_file` and `<name>_sha256`: a policy its weights, a training its state."""


_FOLDERS = {"_checks", "_evaluations", "_estimates", "checkpoints", "history"}
_FILES = {"policy.json", RESULT_FILE}
"""Folders and files with a checksum of their own; other files are skipped."""


@dataclass(frozen=True, slots=True)
class Verified:
    """A version, checkpoint or result that was compared with its hashes."""

    what: Literal["version", "checkpoint", "result"]
    name: str
    """URI, of a version with its number."""
    wrong: tuple[str, ...] = ()
    """Problems; empty if it is what was written."""


def verify(uri: str, version: int | None = None) -> Iterator[Verified]:
    """Everything at or below `uri` that has hashes, each as soon as it was compared; reads every byte.

    Arguments:
        version: only that version of the dataset at `uri`.

    Raises:
        DatasetNotFoundError: nothing there has hashes.
        VersionNotFoundError: the dataset has no such version.
    """
    root = Location.of(uri)
    if version is not None:
        if version not in (known := versions(uri)):
            raise VersionNotFoundError(f"Dataset {uri} has no version {version}; it has {known or 'none'}.")
        yield _of_version(root, version)
        return
    found = False
    for name in root.files():
        folder, base = posixpath.split(name)
        if not name.endswith(".json") or any(part.startswith(TEMPORARY) for part in name.split("/")):
            continue
        if posixpath.basename(folder) == VERSIONS and base[:-5].isdigit():
            dataset = posixpath.dirname(folder)
            one = _of_version(root.child(dataset) if dataset else root, int(base[:-5]))
        elif (other := _of_json(root.child(name))) is not None:
            one = other
        else:
            continue
        found = True
        yield one
    if not found:
        root.check_bucket()
        raise DatasetNotFoundError(f"There is nothing to verify at {uri}: neither a committed version nor a policy.")


def _of_version(root: Location, version: int) -> Verified:
    name = f"{root.uri} version {version}"
    try:
        wrong = damaged_files(open_version(root, version))
    except OfflineError as error:
        return Verified("version", name, (str(error),))
    return Verified("version", name, tuple(f"{path} {what}" for path, what in wrong.items()))


def _of_json(place: Location) -> Verified | None:
    """None if another program wrote it, or an older version without checksums that names no hashed file."""
    folder, name = place.uri.split("/")[-2:]
    if folder not in _FOLDERS and name not in _FILES:
        return None
    try:
        data = place.read()
        if name == RESULT_FILE and folder not in _FOLDERS and b'"identity"' not in data:
            return None
        inside = without_checksum(data, place.uri)
        values = json.loads(inside)
    except OfflineError as error:
        return Verified("result", place.uri, (str(error),))
    except (ValueError, RecursionError) as error:
        return Verified("result", place.uri, (f"it is not JSON: {error}",))
    values = values if isinstance(values, dict) else {}
    named = [(values[f"{name}_file"], values.get(f"{name}_sha256")) for name in _TENSORS if f"{name}_file" in values]
    if named:
        return Verified("checkpoint", place.uri, tuple(filter(None, (_wrong(place.parent, *each) for each in named))))
    return None if inside is data else Verified("result", place.uri)


def _wrong(folder: Location, name: Any, sha256: Any) -> str | None:
    try:
        _, found = size_and_hash(folder.child(posixpath.basename(str(name))))
    except OfflineError as error:
        return str(error)
    return None if found == sha256 else f"{name} is damaged: its SHA-256 differs from the one that was written"
