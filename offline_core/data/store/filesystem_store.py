"""A store on any filesystem of PyArrow or fsspec: Google Cloud, Azure, Hadoop, SFTP, and user filesystems."""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any

from pyarrow import fs

from offline_core.data.store.cloud_errors import NO_BUCKET, NoBucketError, RefusedError, os_errors
from offline_core.data.store.fsspec_adapter import EXCLUSIVE, open_filesystem
from offline_core.data.store.lease import LeasingStore
from offline_core.data.store.stores import LINK_SECONDS
from offline_core.data.store.temporary_names import temporary_name

_COPY_BYTES = 16 * 2**20
_MARKER = ".folder"
"""An empty file that makes a folder exist in an object store."""


@dataclass(frozen=True)
class FilesystemStore(LeasingStore):
    """See `Store`. Puts are atomic where the filesystem's own are, as in object stores."""

    maker: str
    """A protocol of fsspec, or module:callable."""
    arguments: str = field(repr=False)
    """Arguments for it, as JSON; the value of a variable `${NAME}` never leaves the process."""
    one_writer: bool
    """No two runs write to the same folder."""

    @property
    @os_errors()
    def filesystem(self) -> fs.FileSystem:
        return open_filesystem(self.maker, self.arguments)[0]

    @os_errors()
    def put(self, path: str, data: bytes) -> None:
        if self.maker in EXCLUSIVE:
            with _bucket_there():
                self._native.pipe_file(path, data)
            return
        with self._moved_to(path) as temporary, self.filesystem.open_output_stream(temporary) as stream:
            stream.write(data)

    @os_errors()
    def create(self, path: str, data: bytes) -> None:
        if self.maker in EXCLUSIVE:
            try:
                with _bucket_there():
                    self._native.pipe_file(path, data, mode="create")
            except FileExistsError:  # a retried put whose first answer was lost finds its own bytes
                if self._native.cat_file(path) != data:
                    raise
            return
        if not self.one_writer:
            raise RefusedError(
                errno.EACCES,
                f"{self.maker} cannot create a file that only one of two writers gets; if no two runs ever write to the same "
                "folder, set one_writer in OFFLINE_FILESYSTEMS",
            )
        if self.filesystem.get_file_info(path).type != fs.FileType.NotFound:
            raise FileExistsError(errno.EEXIST, "exists already", path)
        self.put(path, data)

    @os_errors()
    def delete(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.filesystem.delete_file(path)

    @os_errors()
    def make_folder(self, path: str) -> None:
        self.put(posixpath.join(path, _MARKER), b"")

    @os_errors()
    def remove_empty_folder(self, path: str) -> None:
        found = self.filesystem.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
        if any(posixpath.basename(info.path) != _MARKER for info in found):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        self.delete(posixpath.join(path, _MARKER))
        if self.maker not in EXCLUSIVE:
            self.filesystem.delete_dir(path)

    @os_errors()
    def put_file(self, file: IO[bytes], path: str) -> None:
        file.flush()
        file.seek(0)
        if self.maker in EXCLUSIVE:
            # Not by a stream: closing one after an error leaves a partial file under its name.
            with _bucket_there():
                self._native.put_file(f"/dev/fd/{file.fileno()}", path)
        else:
            with self._moved_to(path) as temporary, self.filesystem.open_output_stream(temporary) as stream:
                shutil.copyfileobj(file, stream, _COPY_BYTES)
        file.close()

    @contextlib.contextmanager
    def _moved_to(self, path: str) -> Iterator[str]:
        """Yield a temporary name, and move it to `path` if the block succeeds."""
        folder = posixpath.dirname(path)
        temporary = posixpath.join(folder, temporary_name())
        if folder.strip("/"):
            self.filesystem.create_dir(folder, recursive=True)
        try:
            yield temporary
            self.filesystem.move(temporary, path)
        except BaseException:
            with contextlib.suppress(Exception):  # the error before is the one to report
                self.filesystem.delete_file(temporary)
            raise

    def link(self, path: str) -> str | None:
        with contextlib.suppress(Exception):  # not every filesystem can, nor with every kind of credentials
            return str(self._native.sign(path, expiration=LINK_SECONDS))
        return None

    @property
    def has_buckets(self) -> bool:
        return self.maker in EXCLUSIVE

    @property
    def _native(self) -> Any:
        return open_filesystem(self.maker, self.arguments)[1]


@contextlib.contextmanager
def _bucket_there() -> Iterator[None]:
    """Report a missing bucket: a write to an object store misses nothing else."""
    try:
        yield
    except FileNotFoundError as error:
        raise NoBucketError(errno.ENOENT, NO_BUCKET) from error
