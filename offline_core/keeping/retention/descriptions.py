"""Files that say something of versions without naming an episode: checks, cards, exports, estimates, decisions, failures.

An extreme return or a histogram may be of a forgotten episode, so these files go with it. They are made again when they are
asked for.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from offline_core.data.datasets.catalogue import VERSIONS, kind_of
from offline_core.data.datasets.dataset import Dataset
from offline_core.data.datasets.failure import read_failure
from offline_core.data.datasets.result_cache import SIDECAR_FILES, stored_values
from offline_core.errors import CorruptFileError
from offline_core.keeping.contents import Contents

_BAD_BATCH = "bad-batch.safetensors"
"""Steps that a training kept when its loss was no number."""


def descriptions(contents: Contents, versions: Sequence[Dataset], policies: Collection[str]) -> list[str]:
    """Files below the root, relative to it, that describe one of the versions.

    Arguments:
        policies: names of the folders of the checkpoints that learned from them.
    """
    fingerprints = {fingerprint for version in versions for fingerprint in version.manifest.fingerprints}
    paths = {path for version in versions for path in beside(contents, version)}
    for path in contents.catalogue.of("result", "estimate"):
        paths |= _of_result(contents, path, fingerprints)
    paths |= {posixpath.join(posixpath.dirname(name), _BAD_BATCH) for name in policies}
    for path in contents.catalogue.of("failure") if versions else ():  # an error may quote any value of what was read
        if read_failure(contents.root.child(posixpath.dirname(path))) is not None:
            paths.add(path)
    return sorted(paths & contents.catalogue.files.keys())


def beside(contents: Contents, version: Dataset) -> Iterator[str]:
    """A check, cards, clips, the time of the last verification, and the list of rows that an import could not read."""
    number = f"{version.manifest.version:06d}"
    names = [f"_checks/{number}.json", f"{VERSIONS}/{number}.verified"]
    names += [f"{folder}/{number}.{kind}" for folder in ("_cards", "_checks") for kind in ("md", "html", "png")]
    names.append(f"_quarantine/{posixpath.basename(str(version.manifest.report.get('quarantine')))}")
    folder = version.location.uri.removeprefix(contents.root.uri).strip("/")
    yield from (posixpath.join(folder, name) for name in names)
    if version.manifest.operation.stage == "record":
        clips = posixpath.join(folder, f"_clips/{number}/")
        yield from (name for name in contents.catalogue.files if name.startswith(clips))


def named_by_results(contents: Contents) -> dict[str, set[str]]:
    """Fingerprints that the stored results of stages name, by URI; results of datasets themselves are no users of them."""
    results = {path: _stored(contents, path)[0] for path in contents.catalogue.of("result")}
    return {contents.root.child(path).uri: {*_fingerprints(result)} for path, result in results.items() if result}


def _stored(contents: Contents, path: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """(result, fingerprints of what was made) of a stored result; empty if another program wrote the file."""
    try:
        stored = stored_values(contents.root.child(path))
    except CorruptFileError:
        return {}, {}
    return ({}, {}) if stored is None else (stored.result, stored.made)


def _of_result(contents: Contents, path: str, fingerprints: Collection[str]) -> set[str]:
    """The files of an estimate, a decision or an export that names one of the versions; those of a training stay."""
    result, made = _stored(contents, path)
    if not {*fingerprints} & {*_fingerprints(result)}:
        return set()
    if kind_of(path) == "estimate":
        return {path}
    names = {*made, *SIDECAR_FILES} if {"source", "output", "format"} <= result.keys() else SIDECAR_FILES
    is_made_again = names is not SIDECAR_FILES or "verdict" in result
    return {posixpath.join(posixpath.dirname(path), name) for name in names} if is_made_again else set()


def _fingerprints(value: Any) -> Iterator[str]:
    match value:
        case dict():
            if isinstance(fingerprint := value.get("fingerprint"), str):
                yield fingerprint
            for inner in value.values():
                yield from _fingerprints(inner)
        case list():
            for inner in value:
                yield from _fingerprints(inner)
