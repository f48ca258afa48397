"""What each small file below a root says, in brief: as much as a list shows. Kept in a cache, so that it is read only once.

    $OFFLINE_CACHE/catalogues/<hash of the root>.json     or below ~/.cache/offline

A file is read again if its size or the time of its last change is another one. The cache is one file a root, replaced whole,
is believed by the user alone who wrote it, and may be deleted at any time. It holds nothing that the files do not. It never
decides what is deleted, promoted or verified.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pydantic_core import from_json, to_json

from offline_core.data.datasets.catalogue import Catalogue, FileState, Kind
from offline_core.data.datasets.folder_kind import kind_of_result
from offline_core.data.datasets.manifest import READS, STAGES_BEFORE, fingerprint_of_weights
from offline_core.data.store.json_files import without_checksum
from offline_core.data.store.location import Location
from offline_core.errors import CorruptFileError, OfflineError, misread
from offline_core.runtime.prefetch import several
from offline_core.runtime.units import count_text, size_text

log = logging.getLogger(__name__)

CACHE = "OFFLINE_CACHE"
"""Variable that names the folder of caches."""
LEAST_FILES = 1_000
"""Fewer are read faster than a cache is worth."""
_FORMAT = 3
READ_BYTES = 2**16
"""Most files are smaller."""
_SETTLED_NS = 2_000_000_000
"""A file that changed so shortly before it was read may change again within the same tick of its store's clock."""
DEFAULT_ALGORITHMS = {"expert": "ppo", "training": "bc"}
"""The algorithms of runs whose parameters do not name one."""


class Brief(NamedTuple):
    """What one file says."""

    kind: str
    """Of a result one of `RESULT_KINDS`; else that of the file."""
    what: str
    """What it is or came to, in a few words."""
    made: float | None = None
    """Seconds since 1970; None: it does not say."""
    operation: str = ""
    """What made it."""
    sources: Sequence[str] = ()
    """URIs of what it was made from, of datasets with `@<version>`."""
    policy: str = ""
    """URI of the policy that a run came to."""
    algorithm: str = ""
    environment: str = ""
    fingerprints: Sequence[str] = ()
    """Of a policy its own; of an evaluation or an estimate those of what it was made with."""


_Parser = Callable[[Any], Brief | None]
Cached = list[Any]
"""[name, size, changed_ns, the values of a brief]"""
_FIRST, _LAST = (datetime(year, 1, 1, tzinfo=UTC).timestamp() for year in (1, 9999))
"""Seconds since 1970 that are times."""


def read_briefs(
    catalogue: Catalogue, names: Mapping[Kind, Sequence[str]], cached: Mapping[str, Cached]
) -> tuple[dict[str, Brief], list[tuple[str, str]]]:
    """({name: what the file says}, [(name, why it is not read)]).

    Arguments:
        names: of the files to read, by one of `KINDS`.
        cached: from `load_cache`.
    """
    before_ns = time.time_ns() - _SETTLED_NS
    briefs: dict[str, Brief] = {}
    problems: list[tuple[str, str]] = []
    is_new = False
    for kind, of_kind in names.items():
        unread = []
        for name in of_kind:
            if (known := _of_cache(cached.get(name), catalogue.files[name])) is not None:
                briefs[name] = known
            else:
                unread.append(name)
        for name, brief in zip(unread, _read_all(catalogue, unread, _PARSERS[kind]), strict=True):
            if isinstance(brief, Brief):
                briefs[name] = brief
                is_new = is_new or _is_settled(catalogue.files[name], before_ns)
            elif brief is not None:
                problems.append((name, brief))
    if len(briefs) >= LEAST_FILES and (is_new or len(cached) > len(briefs)):
        _store(catalogue, {name: brief for name, brief in briefs.items() if _is_settled(catalogue.files[name], before_ns)})
    return briefs, problems


def _of_cache(entry: Cached | None, state: FileState) -> Brief | None:
    """What is cached of a file that is as it was; None if nothing is."""
    return None if entry is None or (entry[1], entry[2]) != state else Brief(*entry[3])


def _is_settled(state: FileState, before_ns: int) -> bool:
    return state.changed_ns is not None and 0 < state.changed_ns < before_ns


def _read_all(catalogue: Catalogue, names: Sequence[str], parse: _Parser) -> list[Brief | str | None]:
    """What each file says; a text: why it cannot be read; None: another program wrote it."""
    root = catalogue.root
    if root.is_local:
        return [_read(f"{root.path}/{name}", _read_local, parse) for name in names]
    return several(lambda name: _read(root.child(name).uri, lambda _: root.child(name).read(), parse), names)


def _read_local(path: str) -> bytes:
    file = os.open(path, os.O_RDONLY)  # a file object takes as long again as the read
    try:
        parts = []
        while part := os.read(file, READ_BYTES):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(file)


def _read(uri: str, read: Callable[[str], bytes], parse: _Parser) -> Brief | str | None:
    try:
        brief = parse(from_json(without_checksum(read(uri), uri)))
        return None if brief is None else _checked(brief)
    except OfflineError as error:
        return str(error)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        return misread(error)


def _checked(brief: Brief) -> Brief:
    """It, if it is what the fields say: files may be from anywhere.

    Raises:
        TypeError: it is not.
    """
    texts = (brief.kind, brief.what, brief.operation, brief.policy, brief.algorithm, brief.environment)
    are_texts = all(isinstance(text, str) for text in (*texts, *brief.sources, *brief.fingerprints))
    are_lists = all(isinstance(texts, list | tuple) for texts in (brief.sources, brief.fingerprints))
    is_time = brief.made is None or (isinstance(brief.made, int | float) and _FIRST <= brief.made <= _LAST)
    if not (are_texts and are_lists and is_time):
        raise TypeError("a text, a URI or a time is none")
    return brief


def _version(values: Mapping[str, Any]) -> Brief:
    if (format := values["manifest_version"]) > READS:
        raise CorruptFileError(f"It was written by a newer version of this package (format {format}): upgrade.")
    statistics = values["statistics"]
    size = size_text(sum(file["bytes"] for file in values["files"]))
    return Brief(
        "dataset",
        f"{count_text(statistics['episodes'], 'episode')}, {count_text(statistics['steps'], 'step')}, {size}",
        _seconds(values["created_at"]),
        _stage(values["operation"]),
        _sources(values),
    )


def algorithm_of(config: Mapping[str, Any], kind: str = "") -> str:
    """The algorithm that parameters name, of the user's own its path; else what a run of this kind learns with by default."""
    algorithm = config.get("algorithm", DEFAULT_ALGORITHMS.get(kind, ""))
    return str(algorithm.get("path", "") if isinstance(algorithm, Mapping) else algorithm)


def _policy(values: Mapping[str, Any]) -> Brief:
    environment, transformer = values.get("environment"), values["network"].get("transformer")
    target_return = None if transformer is None else transformer["target_return"]
    return Brief(
        "policy",
        _return(values.get("metrics", {})) or values["weights_sha256"][:16],
        _seconds(values["created_at"]),
        _stage(values["operation"]),
        _sources(values),
        algorithm=algorithm_of(values["operation"].get("config", {})),
        environment="" if environment is None else environment["id"],
        fingerprints=[fingerprint_of_weights(values["weights_sha256"], target_return)],
    )


def _check(values: Mapping[str, Any]) -> Brief:
    return Brief("check", str(values["result"]["verdict"]))


def _result(values: Mapping[str, Any]) -> Brief | None:
    result = values["result"]
    if (kind := kind_of_result(result)) is None:
        return None
    dataset = result.get("dataset")
    return Brief(
        kind,
        _TOLD[kind](result) if kind in _TOLD else _return(result.get("metrics", {})),
        sources=[f"{dataset['uri']}@{dataset['version']}"] if isinstance(dataset, dict) else (),
        policy="" if kind in _OF_POLICIES else str(result.get("checkpoint") or ""),
        algorithm=algorithm_of(result, kind),
        fingerprints=[*map(str, values["made"].values())] if kind in _OF_POLICIES else (),
    )


def _evaluation(result: Mapping[str, Any]) -> str:
    return f"{_return(result['metrics'])} of {result['environment']}"


def _estimate(result: Mapping[str, Any]) -> str:
    values = (f"{name} {float(estimate['value']):.4g}" for name, estimate in result["estimates"].items())
    return f"{', '.join(values)}; recorded {float(result['recorded']['value']):.4g}"


def _sweep(result: Mapping[str, Any]) -> str:
    settings = result["settings"]
    return f"{len(settings):,} settings by {result['score'].replace('_', ' ')}, best: {settings[0]['name']}"


_OF_POLICIES = ("evaluation", "estimate")
"""Kinds of results that lie in the folder of the policy they are of."""
_TOLD: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "evaluation": _evaluation,
    "estimate": _estimate,
    "decision": lambda result: f"{result['verdict']}: {result['sentence']}",
    "sweep": _sweep,
    "outlier ranking": lambda result: count_text(result["count"], "outlier"),
    "export": lambda result: f"{count_text(result['episodes'], 'episode')} as {result['format']}",
    "policy export": lambda result: ", ".join(result["models"]),
}
"""What results say, of kinds that have more to say than a mean return."""
_PARSERS: Mapping[Kind, _Parser] = {
    "version": _version,
    "policy": _policy,
    "check": _check,
    "result": _result,
    "evaluation": _result,
    "estimate": _result,
}
KINDS = (*_PARSERS,)
"""Of files that have something to say."""


def _return(metrics: Mapping[str, float]) -> str:
    mean, episodes = metrics.get("episode_return_mean"), metrics.get("episodes")
    if mean is None:
        return ""
    return f"mean return {mean:.4g}" + ("" if episodes is None else f" over {episodes:,.0f} episodes")


def _stage(operation: Mapping[str, Any]) -> str:
    name = str(operation["name"])
    return STAGES_BEFORE.get(name, name)


def _sources(values: Mapping[str, Any]) -> list[str]:
    parents = ((parent["uri"], parent.get("version")) for parent in values.get("parents", ()))
    return [*dict.fromkeys(uri if version is None else f"{uri}@{version}" for uri, version in parents)]


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()


def _cache_file(root: Location) -> Location | None:
    """The file of the cache; None: there is no place for one."""
    above = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = os.environ.get(CACHE) or os.path.join(above, "offline")
    if folder.startswith("~"):  # a number without a name and a home, as in a container
        return None
    name = hashlib.sha256(root.uri.encode(errors="replace")).hexdigest()[:32]
    return Location.on_disk(os.path.join(folder, "catalogues", f"{name}.json"))


def load_cache(root: Location) -> dict[str, Cached]:
    """What is in the cache of a root, by name; nothing if it is not there, not what was written, or another user's."""
    if (location := _cache_file(root)) is None:
        return {}
    try:
        if os.name == "posix" and os.stat(location.path).st_uid != os.geteuid():  # who may say what they like of these files
            raise ValueError("it is another user's")
        digest, _, body = _read_local(location.path).partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != digest:
            raise ValueError("it is damaged")
        values = from_json(body)
        if (values["format"], values["root"]) != (_FORMAT, root.uri):
            return {}
        return {entry[0]: entry for entry in values["files"]}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, LookupError, TypeError) as error:
        log.info("The cache %s is not used: %s", location.uri, error)
        return {}


def _store(catalogue: Catalogue, briefs: Mapping[str, Brief]) -> None:
    if (location := _cache_file(catalogue.root)) is None:
        return
    files = [(name, *catalogue.files[name], brief) for name, brief in briefs.items()]
    try:
        body = to_json({"format": _FORMAT, "root": catalogue.root.uri, "files": files})
        os.makedirs(os.path.dirname(location.path), mode=0o700, exist_ok=True)
        location.write(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
    except (OfflineError, OSError, ValueError) as error:  # the list is complete without
        log.info("The cache %s is not written: %s", location.uri, error)
