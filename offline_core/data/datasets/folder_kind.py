"""What a folder is, by its files: said to those who gave a folder of another kind than is needed."""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from offline_core.data.datasets.catalogue import POLICY_FILE, VERSIONS, read_catalogue
from offline_core.data.datasets.result_cache import RESULT_FILE, stored_values
from offline_core.data.store.json_files import without_checksum
from offline_core.data.store.location import Location
from offline_core.errors import CorruptFileError, StorageError, StorageUnavailableError
from offline_core.runtime.units import list_text

BEST, LAST = "best", "last"
RESULT_KINDS: Mapping[str, frozenset[str]] = {
    "sweep": frozenset({"settings", "score"}),
    "decision": frozenset({"verdict", "candidates"}),
    "outlier ranking": frozenset({"scores", "threshold"}),
    "fine-tuning": frozenset({"start_return", "curve"}),
    "expert": frozenset({"env_steps", "curve"}),
    "training": frozenset({"losses", "epochs"}),
    "check": frozenset({"findings", "verdict"}),
    "estimate": frozenset({"estimates", "recorded"}),
    "evaluation": frozenset({"returns", "lengths"}),
    "policy export": frozenset({"models", "policy_latency"}),
    "export": frozenset({"source", "output", "format"}),
}
"""Kinds of stored results by fields that no other kind before has."""
_MOST_NAMES = 4


@dataclass(frozen=True, slots=True)
class Folder:
    """What a folder is."""

    what: str
    """With its article: "a dataset", "the folder of a training"."""
    policy: str | None = None
    """The policy that it stands for: itself, or what the run whose folder it is came to."""
    dataset: str | None = None
    """What the run read, or the policy learned from."""
    datasets: tuple[str, ...] = ()
    """Datasets in a folder that holds several things."""
    policies: tuple[str, ...] = ()
    """Policies in a folder that holds several things."""


def kind_of_result(values: Mapping[str, Any]) -> str | None:
    """One of `RESULT_KINDS`, by the fields of a stored result."""
    return next((kind for kind, fields in RESULT_KINDS.items() if fields <= values.keys()), None)


def folder_at(uri: str) -> Folder | None:
    """What a folder is; None if it is nothing of this pipeline, or not there.

    Raises:
        StorageUnavailableError: the storage does not answer.
    """
    location = Location.of(uri)
    try:
        if location.child(VERSIONS).is_folder():
            return Folder("a dataset", dataset=uri)
        if location.child(POLICY_FILE).is_file():
            return Folder("a policy", policy=uri, dataset=_learned_from(location))
        left = [f"{uri.rstrip('/')}/{name}" for name in (BEST, LAST) if location.child(f"{name}/{POLICY_FILE}").is_file()]
        if (result := _result_in(location)) is not None:
            kind, values = result
            policy = left[0] if left else _checkpoint(location, values)
            return Folder(f"the folder of {'an' if kind[0] in 'aeiou' else 'a'} {kind}", policy, _dataset(values))
        if left:
            return Folder("the folder of a training that is not done", left[0])
        return _holding(location, uri)
    except StorageUnavailableError:
        raise
    except (StorageError, CorruptFileError):
        return None


def not_a_dataset(uri: str) -> str | None:
    """What a folder is that is no dataset, and what to give in its place; None if nothing is known of it."""
    folder = folder_at(uri)
    if folder is None or folder.what == "a dataset":
        return None
    if folder.datasets:
        inside = list_text(folder.datasets, _MOST_NAMES)
        return f"{uri} is {folder.what}, and no dataset itself. Give one of those in it: {inside}."
    source = None if folder.dataset is None else f"a dataset, such as {_near(folder.dataset)}, from which it was made"
    instead = source or "the folder of a dataset"
    order = "" if folder.policy is None else " 'offline decide' and 'offline explain' take the dataset before the policies."
    return f"{uri} is {folder.what}, not a dataset. Give {instead}.{order}"


def not_a_policy(uri: str) -> str | None:
    """What a folder or file is that neither is a policy nor stands for one, and what to give in its place; None: not known."""
    if Location.of(uri).is_file():
        return (
            f"{uri} is a file, and a policy is a folder. If it is a log, import it, 'offline import {uri} -o runs/log': as the "
            "candidate of a decision, the dataset stands for what recorded it."
        )
    folder = folder_at(uri)
    if folder is None:
        return None
    if folder.what == "a dataset":
        return (
            f"{uri} is a dataset, not a policy. Train one from it, 'offline train {uri}', and give the folder of that training."
        )
    if folder.policies:
        return (
            f"{uri} is {folder.what}, and no policy itself. Give one of those in it: {list_text(folder.policies, _MOST_NAMES)}."
        )
    return f"{uri} is {folder.what}, not a policy. Give the folder of a policy, or of a training."


def _result_in(location: Location) -> tuple[str, Mapping[str, Any]] | None:
    """(kind, result) of the run whose folder this is."""
    file = location.child(RESULT_FILE)
    if (stored := stored_values(file) if file.is_file() else None) is None or (kind := kind_of_result(stored.result)) is None:
        return None
    return kind, stored.result | {"place": posixpath.dirname(stored.uri)}


def _checkpoint(location: Location, values: Mapping[str, Any]) -> str | None:
    """The policy that a sweep or a decision names; where the folder was moved, the one that moved with it."""
    named, recorded_folder = values.get("checkpoint"), f"{values['place']}/"
    if not isinstance(named, str):
        return None
    if named.startswith(recorded_folder):
        return location.inside(named.removeprefix(recorded_folder)).uri
    return named if location.is_near(named) else None


def _dataset(values: Mapping[str, Any]) -> str | None:
    dataset = values.get("dataset")
    return str(dataset["uri"]) if isinstance(dataset, dict) and "uri" in dataset else None


def _learned_from(policy: Location) -> str | None:
    try:
        parents = json.loads(without_checksum((file := policy.child(POLICY_FILE)).read(), file.uri))["parents"]
        return next((str(parent["uri"]) for parent in parents if parent["kind"] == "dataset"), None)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, CorruptFileError):
        return None


def _holding(location: Location, uri: str) -> Folder | None:
    catalogue = read_catalogue(location)
    datasets, policies = catalogue.datasets, {posixpath.dirname(name) for name in catalogue.of("policy")}
    results = {posixpath.dirname(name) for name in catalogue.of("result")} - {""}
    inside = tuple(f"{folder}/" for folder in results)
    loose = (name for name in catalogue.files if name.endswith(".parquet") and catalogue.owner(name) is None)
    if not (datasets or policies) or any(not name.startswith(inside) for name in loose):
        return None

    def below(folders: AbstractSet[str]) -> tuple[str, ...]:
        return tuple(f"{uri.rstrip('/')}/{folder}" for folder in sorted(folders, key=lambda name: (name.count("/"), name)))

    return Folder("a folder of several", datasets=below(datasets), policies=below(policies))


def _near(uri: str) -> str:
    """A path below the working directory, as people write it."""
    return uri.removeprefix(f"{os.getcwd()}/")
