"""List files and folders, each looked up once: every lookup is a request in an object store."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fsspec.utils import glob_translate
from pyarrow import fs

from offline_core.data.store.location import Location
from offline_core.data.store.storage_errors import storage_errors
from offline_core.errors import ConfigError

WILDCARDS = frozenset("*?[")
_ANY_DEPTH = "**"


@dataclass
class Listing:
    """A cache of file information for one import; later changes are not seen.

    Storage that does not answer raises an error, it is not taken for empty.
    """

    _infos: dict[str, fs.FileInfo] = field(default_factory=dict)
    """File information by URI."""
    _below: dict[tuple[str, bool], dict[str, fs.FileInfo]] = field(default_factory=dict)
    """The contents of folders, by URI and whether the folder was listed recursively."""

    def info(self, location: Location) -> fs.FileInfo:
        """Type, size and time of the last change."""
        if location.uri not in self._infos:
            with storage_errors("look at", location.uri):
                self._infos[location.uri] = location.filesystem.get_file_info(location.path)
        return self._infos[location.uri]

    def is_file(self, location: Location) -> bool:
        return bool(self.info(location).type == fs.FileType.File)

    def is_folder(self, location: Location) -> bool:
        return bool(self.info(location).type == fs.FileType.Directory)

    def below(self, folder: Location, *, recursive: bool = True) -> dict[str, fs.FileInfo]:
        """Return files and folders by their paths relative to this folder, sorted; empty if there is no folder."""
        key = (folder.uri, recursive)
        if key not in self._below:
            infos = folder.listed(recursive=recursive)
            base = folder.path.strip("/")
            named = {info.path.strip("/").removeprefix(base).lstrip("/"): info for info in infos}
            self._below[key] = dict(sorted(named.items()))
            for name, info in named.items():
                self._infos.setdefault(folder.child(name).uri, info)
        return self._below[key]

    def matches(self, folder: Location, pattern: Sequence[str]) -> Iterator[Location]:
        """Yield the files and folders below `folder` whose path matches `pattern`; ** is any number of folders.

        Raises:
            ConfigError: the pattern has ** in a part with something else.
        """
        if not pattern:
            yield folder
            return
        part, *rest = pattern
        if _ANY_DEPTH in part and part != _ANY_DEPTH:
            raise ConfigError(f"{part!r}: ** must be a whole part of a pattern, as in logs/**/*.csv.")
        if not WILDCARDS & set(part):
            child = folder.child(part)
            child.check_allowed()
            if rest or self.info(child).type != fs.FileType.NotFound:
                yield from self.matches(child, rest)
            return
        wanted = re.compile(glob_translate("/".join(pattern) if part == _ANY_DEPTH else part))
        for name, info in self.below(folder, recursive=part == _ANY_DEPTH).items():
            if not wanted.match(name):
                continue
            if part == _ANY_DEPTH or not rest:
                yield folder.child(name)
            elif info.type == fs.FileType.Directory:
                yield from self.matches(folder.child(name), rest)
