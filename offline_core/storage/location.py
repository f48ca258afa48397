"""A URI and the filesystem that serves it: the one place where a string becomes a place.

Paths stay URIs from end to end; nothing here or above joins them with `pathlib`, which would turn `s3://` into `s3:/`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import re
import stat
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from pyarrow import fs

from offline_core.errors import BusyError, LocationError, VersionExistsError
from offline_core.storage.cloud_errors import NO_BUCKET, NoBucketError
from offline_core.storage.filesystems import open_place, schemes
from offline_core.storage.given_store import GivenStore
from offline_core.storage.hadoop import hadoop_uri
from offline_core.storage.lease import LeaseLostError
from offline_core.storage.storage_errors import storage_errors
from offline_core.storage.stores import TEMPORARY, LocalStore, Store

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
"""Of two letters at least, for `C:/` is a drive."""

_CREDENTIALS = re.compile(r"[^/@:]*:(?!\d+(/|$)).*@")
"""`key:secret@` where a bucket or a server has to be; what follows a server's colon is a port."""

_SETTINGS = re.compile(r"\?[^/=]+=")
"""`?name=value`, as PyArrow reads them; keys and secrets may be among them."""

_ANOTHER = re.compile(r"""[,;]\s*['"]?/|[,;\s]\s*['"]?[A-Za-z][A-Za-z0-9+.-]*://|^\s*\[.*,.*\]\s*$""")
"""Where a second place begins, in what other systems take for a list."""

_ONE_PLACE = "One place has to be named, by a path or one URI, and not several nor a list of them."

_CONTROL = re.compile(r"[\0-\x1f]")


@dataclass(frozen=True, slots=True)
class Location:
    """A file or folder on a filesystem."""

    uri: str
    """An absolute local path, or a URI with its scheme."""
    store: Store
    path: str
    """The same place as the filesystem names it."""

    @classmethod
    def of(cls, uri: str) -> Location:
        """The location of a local path (relative ones from the working directory) or of a URI, see `filesystems`.

        Raises:
            LocationError: an empty name, a scheme that cannot be opened, or a URI with credentials in it.
            ConfigError: `OFFLINE_FILESYSTEMS` is wrong.
        """
        if not isinstance(uri, str):
            raise LocationError(_ONE_PLACE)
        refuse_credentials(uri)
        scheme = _SCHEME.match(uri)
        if scheme and not uri.startswith("/", scheme.end()) and scheme[1].lower() not in schemes():
            scheme = None  # a file with a colon in its name
        if _ANOTHER.search(uri) or (scheme is None and "://" in uri):  # not repeated: there may be credentials in it
            raise LocationError(_ONE_PLACE)
        if not uri.strip() or _CONTROL.search(uri):
            raise LocationError(f"{uri!r} names no place; give a folder such as 'runs/cartpole'.")
        match scheme and scheme[1].lower():
            case None:
                return cls._local(os.path.expanduser(uri))
            case "file":
                path = unquote(uri[len("file:") :].removeprefix("//localhost").removeprefix("//"))
                if not path.startswith("/"):
                    raise LocationError(
                        f"{uri!r} names another machine; a file:// URI has three slashes, as in file:///data/runs."
                    )
                return cls._local(path)
            case other:
                if other == "hdfs":
                    uri = hadoop_uri(uri[len("hdfs:") :])
                before, _, rest = uri[len(other) + 1 :].rstrip("/").partition("//")
                if other != "hdfs" and (before or not rest or rest.startswith("/")):
                    raise LocationError(f"{uri!r} names no bucket; write {other}://bucket/folder.")
                if _SETTINGS.search(rest):
                    raise LocationError(
                        f"A URI with {other}:// has settings behind a question mark: set them as variables, or in "
                        "OFFLINE_FILESYSTEMS."
                    )
                if {".", ".."} & set(rest.split("/")):  # one client would follow them, and another look for such a key
                    raise LocationError(f"{uri!r}: a URI cannot go up by '..' or stay by '.'; write where it leads.")
                store, path = open_place(other, rest)
                place = uri if other == "hdfs" else f"{other}://{'/'.join(filter(None, rest.split('/')))}"
                return cls(uri=place, store=store, path=path)

    @classmethod
    def _local(cls, path: str) -> Location:
        path = os.path.abspath(path)
        return cls(uri=path, store=LocalStore(), path=path)

    @property
    def is_local(self) -> bool:
        """On this machine's disks, or what is mounted there."""
        return isinstance(self.store, LocalStore)

    @property
    def filesystem(self) -> fs.FileSystem:
        """PyArrow's, which knows this place as `path`."""
        return self.store.filesystem

    def child(self, relative: str) -> Location:
        """The place at `relative` below this one."""
        return Location(_join(self.uri, relative), self.store, _join(self.path, relative))

    def inside(self, name: str) -> Location:
        """The place of that name below this folder, see `check_names`."""
        self.check_names([name])
        return self.child(name)

    def check_names(self, names: Iterable[str]) -> None:
        """Names that a file gives, which may come from elsewhere, have to lie below this folder.

        Raises:
            LocationError: one leads elsewhere: it is absolute, goes up, or a link on the way leaves the folder.
        """
        checked: set[str] = set()
        root = os.path.realpath(self.path) if self.is_local else ""
        for name in names:
            if not name or _CONTROL.search(name) or {"", ".", ".."} & set(name.split("/")):
                raise LocationError(f"A file of {self.uri} names {name[:200]!r}, which is no file below it.")
            path = _join(self.path, name)
            links = [each for each in (posixpath.dirname(path), path) if each not in checked and self.is_local]
            checked.add(posixpath.dirname(path))
            if self.is_local and _is_special(path):
                raise LocationError(f"{_join(self.uri, name)} is a pipe or a device, and no file.")
            for each in links:
                if (each != path or os.path.islink(path)) and os.path.commonpath([root, os.path.realpath(each)]) != root:
                    raise LocationError(
                        f"{_join(self.uri, name)} is a link, or lies behind one, that leaves {self.uri}. If you trust it, copy "
                        "what it leads to: cp -rL."
                    )

    def is_near(self, uri: str) -> bool:
        """Whether `uri` is on this machine, or in the bucket of this place: others that a file names are not asked."""
        scheme, slashes, rest = uri.partition("://")
        if not slashes or scheme.lower() == "file":
            return True
        return [scheme.lower(), rest.split("/")[0]] == [
            self.uri.partition("://")[0],
            self.uri.partition("://")[2].split("/")[0],
        ]

    @property
    def parent(self) -> Location:
        """The folder this place is in.

        Raises:
            LocationError: it is a bucket, or the root of a filesystem object.
        """
        scheme, _, rest = self.uri.partition("://")
        if isinstance(self.store, GivenStore) and rest and "/" not in rest:
            return Location(f"{scheme}://", self.store, posixpath.dirname(self.path))
        if "/" not in (rest or scheme):
            raise LocationError(f"{self.uri} is a whole bucket; name a folder in it, such as {self.uri}/runs.")
        return Location(posixpath.dirname(self.uri), self.store, posixpath.dirname(self.path))

    def is_file(self) -> bool:
        return bool(self._type() == fs.FileType.File)

    def is_folder(self) -> bool:
        return bool(self._type() == fs.FileType.Directory)

    def check_bucket(self) -> None:
        """To be asked where nothing was found: listings of buckets that are not there may be empty.

        Raises:
            StorageError: there is no such bucket, or it cannot be seen.
        """
        bucket = self.path.partition("/")[0]
        with storage_errors("look at", self.uri):
            if self.store.has_buckets and self.filesystem.get_file_info(bucket).type == fs.FileType.NotFound:
                raise NoBucketError(errno.ENOENT, NO_BUCKET)

    def files(self, *, recursive: bool = True) -> list[str]:
        """Paths relative to this folder of the files below it, sorted; none if there is no folder."""
        return sorted(self.sizes(recursive=recursive))

    def sizes(self, *, recursive: bool = True) -> dict[str, int]:
        """Bytes of the files below this folder, by their paths relative to it."""
        with storage_errors("list", self.uri):
            found = self.filesystem.get_file_info(fs.FileSelector(self.path, recursive=recursive, allow_not_found=True))
        start = len(self.path.rstrip("/")) + 1
        return {info.path[start:]: info.size for info in found if info.type == fs.FileType.File}

    def read(self) -> bytes:
        """The whole file.

        Raises:
            StorageError: it is not there or cannot be read.
        """
        with storage_errors("read", self.uri), self.filesystem.open_input_file(self.path) as file:
            return file.read()  # type: ignore[no-any-return]  # at once; a stream asks for 256 KiB at a time

    def write(self, data: bytes) -> None:
        """Puts `data` there, replacing what was there, whole or not at all."""
        with storage_errors("write", self.uri):
            self.store.put(self.path, data)

    def create(self, data: bytes) -> None:
        """Puts `data` there, whole, if nothing is there yet.

        Raises:
            VersionExistsError: somebody else was first.
        """
        with storage_errors("write", self.uri):
            try:
                self.store.create(self.path, data)
            except FileExistsError as error:
                raise VersionExistsError(f"{self.uri} exists already: another writer was first.") from error

    def make_folder(self) -> Location:
        """This folder, created with its parents if need be and shown to be writable.

        Raises:
            StorageError: no permission, no space, no bucket, or a file is in the way.
        """
        with storage_errors("write", self.uri):
            self.store.make_folder(self.path)
        return self

    def remove_empty_folder(self) -> None:
        """This folder is not there any more.

        Raises:
            StorageError: it is not empty, or cannot be removed.
        """
        with storage_errors("remove", self.uri):
            self.store.remove_empty_folder(self.path)

    def delete(self) -> None:
        """This file is not there any more."""
        with storage_errors("delete", self.uri):
            self.store.delete(self.path)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """This folder is ours alone inside the block; the lock ends with the process, however that ends.

        Raises:
            BusyError: another run holds it, or, at the end, has taken it as this one gave no sign of life for too long.
        """
        with self._kept(), contextlib.ExitStack() as stack:
            with storage_errors("lock", self.uri):  # and not around what is done meanwhile
                try:
                    stack.enter_context(self.store.lock(self.path))
                except BlockingIOError as error:
                    raise BusyError(
                        f"Another run is writing to {self.uri}. Wait until it is done, or choose another output."
                    ) from error
            yield

    def link(self) -> str | None:
        """An address at which a browser shows this file for a day, to whoever has it; None where there are none."""
        with storage_errors("link to", self.uri):
            return self.store.link(self.path)

    @contextlib.contextmanager
    def _kept(self) -> Iterator[None]:
        try:
            yield
        except LeaseLostError as error:
            raise BusyError(
                f"Another run may have taken {self.uri} over, as this one gave no sign of life for too long. What is there may "
                "be of both: run again."
            ) from error

    def _type(self) -> fs.FileType:
        with storage_errors("look at", self.uri):
            return self.filesystem.get_file_info(self.path).type


def refuse_credentials(uri: str) -> None:
    """To be asked of everything that may be a URI before it is repeated anywhere.

    Raises:
        LocationError: there are credentials in it.
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
    """A new folder below `parent` that readers never see, and that is gone afterwards."""
    folder = parent.child(f"{TEMPORARY}{uuid.uuid4().hex}")
    with storage_errors("write", folder.uri):
        folder.filesystem.create_dir(folder.path, recursive=True)
    try:
        yield folder
    finally:
        with contextlib.suppress(OSError):
            folder.filesystem.delete_dir(folder.path)


def _is_special(path: str) -> bool:
    """It is there, and neither a file nor a folder: reading it may never end."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _join(base: str, relative: str) -> str:
    """A root is `/`, nothing, or a scheme alone."""
    return f"{base}{relative}" if not base or base.endswith("://") else f"{base.rstrip('/')}/{relative}"
