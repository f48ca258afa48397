"""Files that say something of versions without naming an episode: checks, cards, exports, estimates, decisions.

An extreme return or a histogram may be of a forgotten episode, so these files go with it. They are made again when they are
asked for.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from offline_core.data.datasets.dataset import VERSIONS, Dataset
from offline_core.data.datasets.result_cache import RESULT_FILE, SIDECAR_FILES
from offline_core.data.store.json_files import without_checksum
from offline_core.errors import CorruptFileError
from offline_core.keeping.retention.catalog import Catalog

_ESTIMATE = re.compile(r"(?:.*/)?_estimates/[0-9a-f]+\.json")
_BAD_BATCH = "bad-batch.safetensors"
"""Steps that a training kept when its loss was no number."""


def descriptions(catalog: Catalog, versions: Sequence[Dataset], policies: Collection[str]) -> list[str]:
    """Files below the root, relative to it, that describe one of the versions.

    Arguments:
        policies: names of the folders of the checkpoints that learned from them.
    """
    fingerprints = {fingerprint for version in versions for fingerprint in version.manifest.fingerprints}
    found = {path for version in versions for path in beside(catalog, version)}
    for path in catalog.sizes:
        if _ESTIMATE.fullmatch(path) or posixpath.basename(path) == RESULT_FILE:
            found |= _of_result(catalog, path, fingerprints)
    found |= {posixpath.join(posixpath.dirname(name), _BAD_BATCH) for name in policies}
    return sorted(found & catalog.sizes.keys())


def beside(catalog: Catalog, version: Dataset) -> Iterator[str]:
    """A check, cards, clips, the time of the last verification, and the list of rows that an import could not read."""
    number = f"{version.manifest.version:06d}"
    names = [f"_checks/{number}.json", f"{VERSIONS}/{number}.verified"]
    names += [f"{folder}/{number}.{kind}" for folder in ("_cards", "_checks") for kind in ("md", "html", "png")]
    names.append(f"_quarantine/{posixpath.basename(str(version.manifest.report.get('quarantine')))}")
    folder = version.location.uri.removeprefix(catalog.root.uri).strip("/")
    yield from (posixpath.join(folder, name) for name in names)
    if version.manifest.operation.stage == "record":
        clips = posixpath.join(folder, f"_clips/{number}/")
        yield from (name for name in catalog.sizes if name.startswith(clips))


def named_by_results(catalog: Catalog) -> dict[str, set[str]]:
    """Fingerprints that the stored results of stages name, by URI; results of datasets themselves are no users of them."""
    found = {path: _stored(catalog, path)[0] for path in catalog.sizes if posixpath.basename(path) == RESULT_FILE}
    return {catalog.root.child(path).uri: {*_fingerprints(result)} for path, result in found.items() if result}


def _stored(catalog: Catalog, path: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """(result, fingerprints of what was made) of a stored result; empty if another program wrote the file."""
    place = catalog.root.child(path)
    try:
        values = json.loads(without_checksum(place.read(), place.uri))
        return dict(values["result"]), dict(values["made"])
    except (ValueError, KeyError, TypeError, RecursionError, CorruptFileError):
        return {}, {}


def _of_result(catalog: Catalog, path: str, fingerprints: Collection[str]) -> set[str]:
    """The files of an estimate, a decision or an export that names one of the versions; those of a training stay."""
    result, made = _stored(catalog, path)
    if not {*fingerprints} & {*_fingerprints(result)}:
        return set()
    if _ESTIMATE.fullmatch(path):
        return {path}
    names = {*made, *SIDECAR_FILES} if {"source", "output", "format"} <= result.keys() else SIDECAR_FILES
    is_made_again = names is not SIDECAR_FILES or "verdict" in result
    return {posixpath.join(posixpath.dirname(path), name) for name in names} if is_made_again else set()


def _fingerprints(value: Any) -> Iterator[str]:
    match value:
        case dict():
            if isinstance(found := value.get("fingerprint"), str):
                yield found
            for inner in value.values():
                yield from _fingerprints(inner)
        case list():
            for inner in value:
                yield from _fingerprints(inner)
