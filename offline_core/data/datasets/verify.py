"""Compare what is below a root with the hashes that were written with it: versions, policies, results, tags, moves, metrics."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from offline_core.data.datasets.catalogue import POLICY_FILE, Catalogue, Kind, read_catalogue
from offline_core.data.datasets.damage import damaged_files
from offline_core.data.datasets.dataset import addressed, open_version, size_and_hash, versions
from offline_core.data.datasets.manifest import fingerprint_of_weights
from offline_core.data.datasets.tags import read_tags, tag_moves
from offline_core.data.store.json_files import read_lines, without_checksum
from offline_core.data.store.location import Location
from offline_core.data.store.numbered_log import NumberedLog
from offline_core.data.store.temporary_names import TEMPORARY
from offline_core.errors import DatasetNotFoundError, LocationError, OfflineError, VersionNotFoundError

_TENSORS = ("weights", "tensors")
"""A JSON file names these files by `<name>_file` and `<name>_sha256`: a policy its weights, a training its state."""
_NETWORKS = "networks.safetensors"
"""The result of a training has the hash of this file, if it wrote one."""
_NAMES = {"alias", "checkpoint", "fingerprint"}
"""What a move of a registry says of the checkpoint that an alias names."""
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Verified:
    """What was compared with its hashes: a version, a checkpoint, a result, the tags of a dataset, and so on."""

    what: Literal["version", "checkpoint", "result", "tag log", "about log", "move log", "metrics file"]
    name: str
    """URI, of a version with its number."""
    wrong: tuple[str, ...] = ()
    """Problems; empty if it is what was written."""


def verify(uri: str, version: int | None = None) -> Iterator[Verified]:
    """Everything at or below `uri` that has hashes, each as soon as it was compared; reads every byte.

    Arguments:
        uri: folder, or the address of a version, `runs/data@tag`.
        version: only that version of the dataset at `uri`.

    Raises:
        DatasetNotFoundError: nothing there has hashes.
        VersionNotFoundError: the dataset has no such version.
    """
    uri, version = addressed(uri, version)
    root = Location.of(uri)
    if version is not None:
        if version not in (known := versions(uri)):
            raise VersionNotFoundError(f"Dataset {uri} has no version {version}; it has {known or 'none'}.")
        yield _version(root, version)
        return
    has_hashes = False
    for verified in _everything(read_catalogue(root)):
        has_hashes = True
        yield verified
    if not has_hashes:
        root.check_bucket()
        raise DatasetNotFoundError(f"There is nothing to verify at {uri}: neither a committed version nor a policy.")


def _everything(catalogue: Catalogue) -> Iterator[Verified]:
    logs: set[str] = set()
    kinds = {name: kind for kind in catalogue.by_kind for name in catalogue.of(kind)}
    for name, kind in sorted(kinds.items()):
        if any(part.startswith(TEMPORARY) for part in name.split("/")):
            continue
        location, folder = catalogue.location(name), posixpath.dirname(name)
        if kind == "version":
            yield _version(catalogue.location(posixpath.dirname(folder)), int(posixpath.basename(name)[:-5]))
        elif kind == "metrics":
            yield _metrics(location)
        elif kind in ("tag", "about", "move"):
            if folder not in logs:
                logs.add(folder)
                yield _log(catalogue.location(folder), kind)
        elif kind != "mark" and (one := _json(location, kind)) is not None:
            yield one


def _version(root: Location, version: int) -> Verified:
    name = f"{root.uri} version {version}"
    try:
        wrong = damaged_files(open_version(root, version))
    except OfflineError as error:
        return Verified("version", name, (str(error),))
    return Verified("version", name, tuple(f"{path} {what}" for path, what in wrong.items()))


def _log(folder: Location, kind: Kind) -> Verified:
    """The tags of a dataset, what is said of it, or the moves of a name in a registry."""
    what: Literal["tag log", "about log", "move log"] = "about log" if kind == "about" else "move log"
    above = folder.parent
    wrong: list[str] = []
    try:
        if kind == "tag":
            what = "tag log"
            tag_moves(above.parent)
            read_tags(above.parent)
        else:
            entries = NumberedLog(above, posixpath.basename(folder.uri)).entries()
            named = {entry["alias"]: entry for entry in entries if entry.keys() >= _NAMES}
            wrong = [f"{alias} names {why}" for alias, move in sorted(named.items()) if (why := _not_named(above, move))]
    except OfflineError as error:
        wrong = [str(error)]
    return Verified(what, folder.uri, tuple(wrong))


def _not_named(entry: Location, move: Mapping[str, Any]) -> str | None:
    """What is wrong with the checkpoint that an alias names now, but for its own hashes; None if it is the one."""
    file = entry.inside(move["checkpoint"]).child(POLICY_FILE)
    if not file.is_file():
        return f"{file.parent.uri}, which is gone"
    try:
        values = json.loads(without_checksum(file.read(), file.uri))
        transformer = values["network"].get("transformer") or {}
        holds = fingerprint_of_weights(values["weights_sha256"], transformer.get("target_return"))
    except (OfflineError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return f"{file.parent.uri}, which is no policy that can be read"
    told = f"{file.parent.uri}, which holds the policy {holds} in place of {move['fingerprint']}"
    return None if holds == move["fingerprint"] else told


def _metrics(location: Location) -> Verified:
    try:
        read_lines(location.read(), location.uri)
    except OfflineError as error:
        return Verified("metrics file", location.uri, (str(error),))
    return Verified("metrics file", location.uri)


def _json(location: Location, kind: Kind) -> Verified | None:
    """Verify a JSON file; None if another program wrote it, or an older version without checksums that names no hashed file."""
    try:
        data = location.read()
        if (kind == "result" and b'"identity"' not in data) or (kind == "failure" and b'"failed_at"' not in data):
            return None
        inside = without_checksum(data, location.uri)
        values = json.loads(inside)
    except OfflineError as error:
        return Verified("result", location.uri, (str(error),))
    except (ValueError, RecursionError) as error:
        return Verified("result", location.uri, (f"it is not JSON: {error}",))
    values = values if isinstance(values, dict) else {}
    named = [(values[f"{name}_file"], values.get(f"{name}_sha256")) for name in _TENSORS if f"{name}_file" in values]
    if named:
        return Verified(
            "checkpoint", location.uri, tuple(filter(None, (_wrong(location.parent, name, sha256) for name, sha256 in named)))
        )
    outputs = _outputs(values)
    if inside is data and not outputs:
        return None
    return Verified(
        "result", location.uri, tuple(filter(None, (_wrong(location.parent, name, sha256) for name, sha256 in outputs.items())))
    )


def _outputs(values: Mapping[str, Any]) -> Mapping[str, str]:
    """Hashes of the files that a stage left beside its result, by their names relative to it."""
    made, result, uri = (values.get(name) for name in ("made", "result", "place"))
    hashes = {}
    if isinstance(made, dict) and isinstance(uri, str):
        folder = f"{posixpath.dirname(uri)}/"
        named = {name: sha256 for name, sha256 in made.items() if name.startswith(folder)}
        hashes = {name.removeprefix(folder): sha256 for name, sha256 in named.items() if _SHA256.fullmatch(str(sha256))}
    if isinstance(result, dict) and isinstance(sha256 := result.get("networks_sha256"), str):
        hashes[_NETWORKS] = sha256
    return hashes


def _wrong(folder: Location, name: Any, sha256: Any) -> str | None:
    try:
        _, actual_sha256 = size_and_hash(folder.inside(str(name)))
    except LocationError:
        return f"it names {str(name)[:200]!r}, which is no file beside it"
    except OfflineError as error:
        return str(error)
    return None if actual_sha256 == sha256 else f"{name} is damaged: its SHA-256 differs from the one that was written"
