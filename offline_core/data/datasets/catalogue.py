"""Everything below a root by one listing: what each file is follows from its name, and nothing is opened for that."""

from __future__ import annotations

import functools
import heapq
import itertools
import posixpath
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from pyarrow import fs

from offline_core.data.datasets.about import OF_RESULTS
from offline_core.data.datasets.failure import FAILURE_FILE
from offline_core.data.datasets.result_cache import RESULT_FILE, STATES
from offline_core.data.datasets.tags import VERSIONS as VERSIONS
from offline_core.data.store.location import Location
from offline_core.errors import StorageError
from offline_core.runtime.prefetch import several

POLICY_FILE = "policy.json"

Kind = Literal[
    "version",
    "mark",
    "tag",
    "about",
    "check",
    "policy",
    "result",
    "evaluation",
    "estimate",
    "move",
    "state",
    "metrics",
    "failure",
    "other",
]
"""version: the manifest of one. mark: another file of `_versions`. about: what is said of a dataset or a result. move: of an
alias in a registry. state: of a training, from which it goes on. metrics: of a training. failure: why one failed. other: data,
tensors, cards, and all that this package does not write."""

_NUMBERED = re.compile(r"\d{6,18}\.json")
_COPY = re.compile(r"(?:^|.*/)checkpoints/[0-9a-f]{16}")
"""A policy in a registry."""
_IN_SERIES = re.compile(r"(?:^|.*/)iterations/\d+")
"""A policy that a training kept on its way."""
_SIDE = re.compile(rf"(?:(.*)/)?sides/[0-9a-f]{{16}}/[^/]+/{VERSIONS}/\d{{6,18}}\.json")
"""A part of a log, that a decision made to decide."""
_OF_DECISIONS = ("sides", "behaviour", "clones")
_BY_NAME: Mapping[str, Kind] = {
    POLICY_FILE: "policy",
    RESULT_FILE: "result",
    "metrics.jsonl": "metrics",
    FAILURE_FILE: "failure",
}
_BY_FOLDER: Mapping[str, Kind] = {
    "_checks": "check",
    "_evaluations": "evaluation",
    "_estimates": "estimate",
    STATES: "state",
}
"""What the JSON files in a folder of this name are."""


class FileState(NamedTuple):
    """What a listing says of a file."""

    size: int
    """Bytes."""
    changed_ns: int | None
    """Time of its last change, nanoseconds since 1970; None: the store does not say."""


@dataclass(frozen=True)
class Catalogue:
    """The files below a root. Names are relative to it; the root itself is the empty one."""

    root: Location
    files: Mapping[str, FileState]
    """All of them, other people's too."""
    by_kind: Mapping[Kind, list[str]]
    """Names in order, of kinds that there are; of `other` none."""
    left_out: int = 0
    """Files that people look at and `newest` left out of `by_kind`."""

    def newest(self, folders: int) -> Catalogue:
        """The same files, but by kind only those that people look at in so many folders: of each kind those that changed last.

        What is in the folder above one of them counts as well: there is the result of a policy.
        """
        shown = {kind: self.shown(kind) for kind in self.by_kind}
        kept: set[str] = set()
        for names in shown.values():
            changed: dict[str, int] = {}
            for name in names:
                folder = posixpath.dirname(name)
                changed[folder] = max(changed.get(folder, 0), self.files[name].changed_ns or 0)
            kept.update(heapq.nlargest(folders, changed, key=changed.__getitem__))
        kept |= {posixpath.dirname(folder) for folder in kept}
        by_kind = {kind: [name for name in names if posixpath.dirname(name) in kept] for kind, names in shown.items()}
        left_out = sum(map(len, shown.values())) - sum(map(len, by_kind.values()))
        return Catalogue(self.root, self.files, by_kind, left_out)

    def of(self, *kinds: Kind) -> list[str]:
        """The names of the files of some kinds, in order."""
        return sorted(name for kind in kinds for name in self.by_kind.get(kind, ()))

    def shown(self, kind: Kind) -> list[str]:
        """The names of the files of a kind that people look at.

        Not hidden ones, nor what decisions made to decide. Of policies neither copies in a registry nor a kept series, nor the
        last one where there is a best one and nothing was measured of the last.
        """
        names = [name for name in self.by_kind.get(kind, ()) if not (is_hidden(name) or name.startswith(self._inner))]
        if kind != "policy":
            return names
        folders = {posixpath.dirname(name): name for name in names}
        measured = {posixpath.dirname(posixpath.dirname(name)) for name in self.of("evaluation", "estimate")}
        return [name for folder, name in folders.items() if _is_shown_policy(folder, folders, measured)]

    @functools.cached_property
    def _inner(self) -> tuple[str, ...]:
        """Folders of what decisions made to decide."""
        folders = {match[1] or "" for name in self.by_kind.get("version", ()) if (match := _SIDE.fullmatch(name))}
        return tuple(sorted(f"{posixpath.join(folder, of)}/" for folder in folders for of in _OF_DECISIONS))

    def location(self, name: str) -> Location:
        """A folder or file below the root."""
        return self.root.child(name) if name else self.root

    @functools.cached_property
    def datasets(self) -> set[str]:
        """The folders of datasets, also of those whose first version is being written."""
        return {_above(posixpath.dirname(name), VERSIONS) for name in self.of("version", "mark", "tag")}

    @functools.cached_property
    def by_dataset(self) -> Mapping[str, list[str]]:
        """The files in the folder of each dataset, relative to it, without those of datasets below it."""
        files: dict[str, list[str]] = {name: [] for name in self.datasets}
        for file in self.files:
            if (owner := self._owner(posixpath.dirname(file))) is not None:
                files[owner].append(file[len(owner) + 1 :] if owner else file)
        return files

    def owner(self, file: str) -> str | None:
        """The innermost dataset that a file lies in; None: it lies in none."""
        return self._owner(posixpath.dirname(file))

    @functools.cached_property
    def _owners(self) -> dict[str, str | None]:
        return {}

    def _owner(self, folder: str) -> str | None:
        if folder in self.datasets:
            return folder
        if not folder:
            return None
        if folder not in self._owners:
            self._owners[folder] = self._owner(posixpath.dirname(folder))
        return self._owners[folder]


def _above(folder: str, name: str) -> str:
    """The folder above the innermost one of that name."""
    while folder and posixpath.basename(folder) != name:
        folder = posixpath.dirname(folder)
    return posixpath.dirname(folder)


def _is_shown_policy(folder: str, folders: Container[str], measured: Container[str]) -> bool:
    if _COPY.fullmatch(folder) or _IN_SERIES.fullmatch(folder):
        return False
    has_best = posixpath.basename(folder) == "last" and posixpath.join(posixpath.dirname(folder), "best") in folders
    return not has_best or folder in measured


def open_catalogue(root: str) -> Catalogue:
    """List a root that has to be there.

    Raises:
        StorageError: it cannot be listed; of a disk, there is none.
    """
    location = Location.of(root)
    catalogue = read_catalogue(location)
    if not catalogue.files:
        location.check_bucket()
        if location.is_local and not location.is_folder():
            raise StorageError(f"There is no folder {location.uri}. Check the path.", uri=location.uri)
    return catalogue


def read_catalogue(root: Location) -> Catalogue:
    """List a root; of one that does not exist nothing.

    Raises:
        StorageError: it cannot be listed.
    """
    begin = len(root.path.rstrip("/")) + 1
    files: dict[str, FileState] = {}
    by_kind: dict[Kind, list[str]] = {}
    for info in _listed(root):
        if (size := info.size) is not None:  # neither a folder nor a pipe; to ask for the type takes ten times as long
            name = info.path[begin:]
            files[name] = FileState(size, info.mtime_ns)
            if (kind := kind_of(name)) != "other":
                by_kind.setdefault(kind, []).append(name)
    for names in by_kind.values():
        names.sort()
    return Catalogue(root, files, by_kind)


def _listed(root: Location) -> Iterable[fs.FileInfo]:
    """What is below a root; on a disk, some of its folders at a time."""
    if not root.is_local:
        return root.listed()
    top = root.listed(recursive=False)
    folders = [info.base_name for info in top if info.size is None and info.type == fs.FileType.Directory]
    return [*top, *itertools.chain.from_iterable(several(lambda name: root.child(name).listed(), folders))]


def kind_of(name: str) -> Kind:
    """What a file is by its name, relative to a root."""
    folder, _, base = name.rpartition("/")
    if (kind := _BY_NAME.get(base)) is not None:
        return kind
    above, _, last = folder.rpartition("/")
    if last == VERSIONS:
        return "version" if _NUMBERED.fullmatch(base) else "mark"
    if last == "tags" and above.rpartition("/")[2] == VERSIONS:
        return "tag"
    if last == OF_RESULTS or (last == "about" and above.rpartition("/")[2] == VERSIONS):
        return "about" if _NUMBERED.fullmatch(base) else "other"
    if not base.endswith(".json") or base[0] == ".":
        return "other"
    if last == "history":
        return "move" if _NUMBERED.fullmatch(base) else "other"
    return _BY_FOLDER.get(last, "other")


def is_hidden(name: str) -> bool:
    """Whether a file, or a folder that it lies in, begins with a dot: those of writers that are at work, or were killed, do."""
    return name.startswith(".") or "/." in name
