"""Locations: a URI and the store that serves it.

Paths stay URIs from end to end: `pathlib` would turn `s3://` into `s3:/`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import unquote

from pyarrow import fs

from offline_core.data.store.allowed_roots import check_allowed, is_limited
from offline_core.data.store.filesystem_store import UserFilesystemStore
from offline_core.data.store.filesystems import open_store, schemes
from offline_core.data.store.hadoop import hadoop_uri
from offline_core.data.store.lease import LeaseLostError
from offline_core.data.store.storage_errors import NO_BUCKET, NoBucketError, ReplacedError, storage_errors
from offline_core.data.store.stores import LocalStore, Store
from offline_core.data.store.temporary_names import temporary_name
from offline_core.errors import BusyError, LocationError, VersionExistsError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
"""Two letters at least: `C:/` is a drive."""

_CREDENTIALS = re.compile(r"[^/@:]*:(?!\d+(/|$)).*@")
"""`key:secret@` in place of a bucket or a server; digits after a server's colon are a port."""

_SETTINGS = re.compile(r"\?[^/=]+=")
"""`?name=value`, as PyArrow reads settings, perhaps secret ones."""

_SEVERAL = re.compile(r"""[,;]\s*['"]?/|[,;\s]\s*['"]?[A-Za-z][A-Za-z0-9+.-]*://|^\s*\[.*,.*\]\s*$""")
"""The begin of a second location, in what other systems read as a list."""

_ONE_LOCATION = "Give one location, as a path or a URI, and not several nor a list of them."

_CONTROL = re.compile(r"[\0-\x1f]")

ATTEMPTS = 20
"""Attempts to list a folder in which writers are at work, or to read a file that they replace."""


@dataclass(frozen=True, slots=True)
class Location:
    """A file or folder on a filesystem."""

    uri: str
    """An absolute local path, or a URI with its scheme."""
    store: Store
    path: str
    """The path in the filesystem."""

    @classmethod
    def of(cls, uri: str) -> Location:
        """Parse a local path (relative ones from the working directory) or a URI, see `filesystems`.

        Raises:
            LocationError: an empty name, a scheme that cannot be opened, a URI with credentials in it, or a location that
                `OFFLINE_ROOTS` does not allow.
            ConfigError: `OFFLINE_FILESYSTEMS` or `OFFLINE_ROOTS` is wrong.
        """
        location = cls._parsed(uri)
        check_allowed(location.uri, _normal)
        return location

    @classmethod
    def _parsed(cls, uri: str) -> Location:
        if not isinstance(uri, str):
            raise LocationError(_ONE_LOCATION)
        refuse_credentials(uri)
        scheme = _SCHEME.match(uri)
        if scheme and not uri.startswith("/", scheme.end()) and scheme[1].lower() not in schemes():
            scheme = None  # a file name with a colon
        if _SEVERAL.search(uri) or (scheme is None and "://" in uri):  # without repeating it: it may contain credentials
            raise LocationError(_ONE_LOCATION)
        if not uri.strip() or _CONTROL.search(uri):
            raise LocationError(f"{uri!r} is no location; give a folder such as 'runs/cartpole'.")
        match scheme and scheme[1].lower():
            case None:
                return cls.on_disk(os.path.expanduser(uri))
            case "file":
                path = unquote(uri[len("file:") :].removeprefix("//localhost").removeprefix("//"))
                if not path.startswith("/"):
                    raise LocationError(
                        f"{uri!r} names another machine; a file:// URI has three slashes, as in file:///data/runs."
                    )
                return cls.on_disk(path)
            case other:
                if other == "hdfs":
                    uri = hadoop_uri(uri[len("hdfs:") :])
                before, _, rest = uri[len(other) + 1 :].rstrip("/").partition("//")
                if other != "hdfs" and (before or not rest or rest.startswith("/")):
                    raise LocationError(f"{uri!r} names no bucket; write {other}://bucket/folder.")
                if _SETTINGS.search(rest):
                    raise LocationError(
                        f"A URI with {other}:// has settings after a question mark: set them as variables, or in "
                        "OFFLINE_FILESYSTEMS."
                    )
                if {".", ".."} & set(rest.split("/")):  # clients disagree: some follow them, some look for such a key
                    raise LocationError(f"{uri!r}: a URI cannot contain '..' or '.'; write the location that it leads to.")
                store, path = open_store(other, rest)
                normal = uri if other == "hdfs" else f"{other}://{'/'.join(filter(None, rest.split('/')))}"
                return cls(uri=normal, store=store, path=path)

    @classmethod
    def on_disk(cls, path: str) -> Location:
        """Return the location of a path that this program made itself, such as a temporary folder."""
        path = os.path.abspath(path)
        return cls(uri=path, store=LocalStore(), path=path)

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine's disks or mounts."""
        return isinstance(self.store, LocalStore)

    @property
    def filesystem(self) -> fs.FileSystem:
        """PyArrow's filesystem, for `path`."""
        return self.store.filesystem

    def child(self, relative: str) -> Location:
        """Return the location at `relative` below this one."""
        return Location(_join(self.uri, relative), self.store, _join(self.path, relative))

    def inside(self, name: str) -> Location:
        """Return the location of that name below this folder, see `check_names`."""
        self.check_names([name])
        return self.child(name)

    def check_names(self, names: Iterable[str]) -> None:
        """Check that untrusted names, which a file contains, stay below this folder.

        Raises:
            LocationError: one is absolute, goes up, or a link on its path leaves the folder.
        """
        folders: set[str] = set()
        root = os.path.realpath(self.path) if self.is_local else ""
        for name in names:
            if not name or _CONTROL.search(name) or {"", ".", ".."} & set(name.split("/")):
                raise LocationError(f"A file of {self.uri} names {name[:200]!r}, which is no file below it.", uri=self.uri)
            if not self.is_local:
                continue
            path = _join(self.path, name)
            folder, mode = posixpath.dirname(path), _mode(path, follow_links=False)
            is_link = stat.S_ISLNK(mode)
            if _is_special(_mode(path, follow_links=True) if is_link else mode):
                raise LocationError(f"{_join(self.uri, name)} is a pipe or a device, and no file.", uri=self.uri)
            places = [*([] if folder in folders else [folder]), *([path] if is_link else [])]
            folders.add(folder)
            for target in places:
                if os.path.commonpath([root, os.path.realpath(target)]) != root:
                    raise LocationError(
                        f"{_join(self.uri, name)} is a link, or lies behind one, that leaves {self.uri}. If you trust it, copy "
                        "its target: cp -rL.",
                        uri=self.uri,
                    )

    def is_near(self, uri: str) -> bool:
        """Whether `uri`, which a file names, is on this machine or in the same bucket: others get no request."""
        scheme, slashes, rest = uri.partition("://")
        if not slashes or scheme.lower() == "file":
            return True
        return [scheme.lower(), rest.split("/")[0]] == [
            self.uri.partition("://")[0],
            self.uri.partition("://")[2].split("/")[0],
        ]

    @property
    def parent(self) -> Location:
        """The folder that contains this location.

        Raises:
            LocationError: this is a bucket, or the root of a filesystem object.
        """
        scheme, _, rest = self.uri.partition("://")
        if isinstance(self.store, UserFilesystemStore) and rest and "/" not in rest:
            return Location(f"{scheme}://", self.store, posixpath.dirname(self.path))
        if "/" not in (rest or scheme):
            raise LocationError(f"{self.uri} is a whole bucket; name a folder in it, such as {self.uri}/runs.", uri=self.uri)
        return Location(posixpath.dirname(self.uri), self.store, posixpath.dirname(self.path))

    def is_file(self) -> bool:
        return bool(self._type() == fs.FileType.File)

    def is_folder(self) -> bool:
        return bool(self._type() == fs.FileType.Directory)

    def check_bucket(self) -> None:
        """Check the bucket after nothing was found: the listing of a missing bucket may be empty.

        Raises:
            StorageError: the bucket does not exist, or access to it is denied.
        """
        bucket = self.path.partition("/")[0]
        with storage_errors("look at", self.uri):
            if self.store.has_buckets and self.filesystem.get_file_info(bucket).type == fs.FileType.NotFound:
                raise NoBucketError(errno.ENOENT, NO_BUCKET)

    def files(self, *, recursive: bool = True) -> list[str]:
        """Return the sorted relative paths of the files below this folder; none if it does not exist."""
        return sorted(self.sizes(recursive=recursive))

    def folders(self) -> list[str]:
        """Return the sorted names of the folders directly in this folder; none if it does not exist."""
        return sorted(info.base_name for info in self.listed(recursive=False) if info.type == fs.FileType.Directory)

    def sizes(self, *, recursive: bool = True) -> dict[str, int]:
        """Return the bytes of the files below this folder, by relative path."""
        start = len(self.path.rstrip("/")) + 1
        return {info.path[start:]: info.size for info in self.listed(recursive=recursive) if info.type == fs.FileType.File}

    def listed(self, *, recursive: bool = True) -> list[fs.FileInfo]:
        """Return what is below this folder; nothing if it does not exist.

        Raises:
            LocationError: a link in it leads to what `OFFLINE_ROOTS` does not allow.
        """
        with storage_errors("list", self.uri):
            infos = _listed(self.filesystem, fs.FileSelector(self.path, recursive=recursive, allow_not_found=True))
        if self.is_local and is_limited():
            for info in infos:
                if os.path.islink(info.path):
                    Location.on_disk(info.path).check_allowed()
        return infos

    def check_allowed(self) -> None:
        """Check a location that was reached from another one, perhaps over a link.

        Raises:
            LocationError: `OFFLINE_ROOTS` does not allow it.
        """
        if self.is_local:
            check_allowed(self.uri, _normal)

    def read(self) -> bytes:
        """Return the whole file.

        Raises:
            StorageError: it does not exist or cannot be read.
        """
        with storage_errors("read", self.uri):
            for _ in range(ATTEMPTS - 1):
                with contextlib.suppress(ReplacedError):
                    return self._whole()
            return self._whole()

    def _whole(self) -> bytes:
        with self.filesystem.open_input_file(self.path) as file:
            return file.read()  # type: ignore[no-any-return]  # one request; a stream reads 256 KiB at a time

    def write(self, data: bytes) -> None:
        """Write the file, replacing the one that exists, whole or not at all."""
        with storage_errors("write", self.uri):
            self.store.put(self.path, data)

    def create(self, data: bytes) -> None:
        """Write the file, whole, if none exists.

        Raises:
            VersionExistsError: another writer was first.
        """
        with storage_errors("write", self.uri):
            try:
                self.store.create(self.path, data)
            except FileExistsError as error:
                raise VersionExistsError(f"{self.uri} exists already: another writer was first.", uri=self.uri) from error

    def make_folder(self) -> Location:
        """Create this folder and its parents where missing, and check that it can be written to.

        Raises:
            StorageError: permission denied, no space, no bucket, or a file is in the way.
        """
        with storage_errors("write", self.uri):
            self.store.make_folder(self.path)
        return self

    def remove_empty_folder(self) -> None:
        """Remove this empty folder.

        Raises:
            StorageError: it is not empty, or cannot be removed.
        """
        with storage_errors("remove", self.uri):
            self.store.remove_empty_folder(self.path)

    def delete_folder(self) -> None:
        """Delete this folder if it exists, its files one after the other in the order of their names."""
        for file in self.files():
            self.child(file).delete()
        if self.is_folder():
            with storage_errors("delete", self.uri):
                self.filesystem.delete_dir(self.path)

    def delete(self) -> None:
        """Delete this file if it exists."""
        with storage_errors("delete", self.uri):
            self.store.delete(self.path)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock this folder inside the block; the lock ends with the process, however that ends.

        Raises:
            BusyError: another run holds it, or took it meanwhile, as this one sent no heartbeat for too long.
        """
        try:
            with contextlib.ExitStack() as stack:
                with storage_errors("lock", self.uri):  # not around the block itself
                    try:
                        stack.enter_context(self.store.lock(self.path))
                    except BlockingIOError as error:
                        message = f"Another run is writing to {self.uri}. Wait until it is done, or choose another output."
                        raise BusyError(message, uri=self.uri) from error
                yield
        except LeaseLostError as error:
            raise BusyError(
                f"Lease lost: another run may have taken {self.uri}, as this one sent no heartbeat for too long. Its files "
                "may be of both runs: run again.",
                uri=self.uri,
            ) from error

    def link(self) -> str | None:
        """Return a URL that shows this file in any browser for a day; None if the store has none."""
        with storage_errors("link to", self.uri):
            return self.store.link(self.path)

    @property
    def modified(self) -> datetime | None:
        """When this file was last written, in UTC; None: it is not there, or the store does not say."""
        with storage_errors("look at", self.uri):
            changed_ns = self.filesystem.get_file_info(self.path).mtime_ns
        return None if changed_ns is None else datetime.fromtimestamp(changed_ns / 1e9, UTC)

    def _type(self) -> fs.FileType:
        with storage_errors("look at", self.uri):
            return self.filesystem.get_file_info(self.path).type


def _listed(filesystem: fs.FileSystem, selector: fs.FileSelector) -> list[fs.FileInfo]:
    """What is in a folder; again, if a writer's temporary file went while it was looked at."""
    for _ in range(ATTEMPTS - 1):
        try:
            return filesystem.get_file_info(selector)  # type: ignore[no-any-return]
        except FileNotFoundError:
            continue
    return filesystem.get_file_info(selector)  # type: ignore[no-any-return]


def _normal(uri: str) -> str:
    return Location._parsed(uri).uri


def refuse_credentials(uri: str) -> None:
    """Check a text that may be a URI before it is repeated anywhere.

    Raises:
        LocationError: it contains credentials.
    """
    scheme = _SCHEME.match(uri)
    if scheme is None:
        return
    name, rest = scheme[1].lower(), uri[scheme.end() :]
    is_uri = rest.startswith("/") or name in schemes()
    if is_uri and _CREDENTIALS.match(rest.removeprefix("//") if name == "file" else rest.lstrip("/")):
        raise LocationError(f"A URI with {name}:// has credentials in it: write it without them, and set them as variables.")


@contextlib.contextmanager
def temporary_folder(parent: Location) -> Iterator[Location]:
    """Yield a new folder below `parent` that readers do not see, and delete it afterwards."""
    folder = parent.child(temporary_name())
    with storage_errors("write", folder.uri):
        folder.filesystem.create_dir(folder.path, recursive=True)
    try:
        yield folder
    finally:
        with contextlib.suppress(OSError):
            folder.filesystem.delete_dir(folder.path)


def _mode(path: str, *, follow_links: bool) -> int:
    """0 if there is nothing."""
    try:
        return os.stat(path, follow_symlinks=follow_links).st_mode
    except OSError:
        return 0


def _is_special(mode: int) -> bool:
    """Whether it exists and is neither a file nor a folder: reading it may never end."""
    return bool(mode) and not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _join(base: str, relative: str) -> str:
    """Join a path to a base, which is perhaps a root: `/`, nothing, or a scheme alone."""
    return f"{base}{relative}" if not base or base.endswith("://") else f"{base.rstrip('/')}/{relative}"
