"""Read the files in a zip archive, as what their names say, or of a format that is given."""

from __future__ import annotations

import contextlib
import dataclasses
import lzma
import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from offline_core.data.formats.sources.expansion import Expansion
from offline_core.data.formats.sources.local_copy import standing_for
from offline_core.data.formats.sources.readers import (
    FORMATS,
    ZIP,
    FileReader,
    format_by_content,
    formats_by_name,
    reader,
    readers_of,
)
from offline_core.data.formats.sources.step_reader import Unreadable
from offline_core.data.store.location import Location
from offline_core.data.store.storage_errors import storage_errors
from offline_core.errors import ConfigError, CorruptFileError, EmptyDatasetError, StorageError, UnsafeDataError

_BROKEN = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, KeyError, RuntimeError, NotImplementedError, pa.ArrowException),
)
"""What reading a damaged or encrypted one raises."""
_COPY_BYTES = 2**20
MAX_FILES = 2_000
"""Of an archive: 3 MB that list 30,000 files would take an hour to read."""


@reader(ZIP, suffixes=(f".{ZIP}",), arguments=FORMATS["csv"].arguments)
@dataclass(frozen=True)
class ZipFile(FileReader):
    """One file in an archive, which is unpacked to a local disk by itself, and read by the format of its name."""

    pushes: ClassVar[tuple[str, ...]] = ("columns", "where")
    takes_others: ClassVar[bool] = True
    of: str | None = None
    """The format of all members; None: that of their names."""
    member: str = ""

    @property
    def uri(self) -> str:
        return f"{self.location.uri}/{self.member}" if self.member else self.location.uri

    def readers(self) -> list[FileReader]:
        """Return a reader for each file of a known format. An archive that cannot be read is its own reader, which raises why.

        Raises:
            ConfigError: there are files of several formats.
            EmptyDatasetError: there are none.
            UnsafeDataError: they unpack to too much, or there are too many.
        """
        try:
            with self._archive() as (archive, size):
                sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
        except CorruptFileError:
            return [self]
        names = [name for name in sorted(sizes) if not any(part[:1] in (".", "_") for part in name.split("/"))]
        kinds = {name: formats_by_name(name) for name in names}
        members = [name for name, own in kinds.items() if own and self.format not in own and self.of in (None, *own)]
        if not members:
            raise EmptyDatasetError(
                f"{self.uri} holds no file of a known format: {', '.join(names[:5]) or 'nothing'}. Unpack it first."
            )
        if len(sizes) > MAX_FILES:
            raise UnsafeDataError(
                f"{self.uri} lists {len(sizes):,} files, and its list is read again for each of them; {MAX_FILES:,} are the "
                "most. Unpack it first."
            )
        Expansion(self.uri, size, self.max_expansion).add(sum(sizes[name] for name in members))  # no more is ever unpacked
        formats = {kinds[name][-1] for name in members}
        if self.of is None and len(formats) > 1:
            raise ConfigError(f"{self.uri} holds files of the formats {', '.join(sorted(formats))}: unpack it first.")
        return [dataclasses.replace(self, member=name) for name in members]

    def batches(self) -> Iterator[pa.Table | Unreadable]:
        """See `StepReader`."""
        with self._archive() as (archive, size), tempfile.TemporaryDirectory(prefix="offline-") as folder:
            expansion = Expansion(self.location.uri, size, self.max_expansion)
            file = self._unpacked(archive, folder, expansion)
            left = max(1.0, self.max_expansion * size / max(1, expansion.unpacked))
            format = self.of or format_by_content(file, formats_by_name(self.member))
            how = {name: getattr(self, name) for name in ("columns", "where", "arguments")}
            [reader] = readers_of(format, file, self.partition, max_expansion=left, **how)
            yield from reader.batches()

    @contextlib.contextmanager
    def _archive(self) -> Iterator[tuple[zipfile.ZipFile, int]]:
        """(the archive, of which only what is needed is read, its bytes)"""
        with storage_errors("read", self.location.uri):
            stream = self.location.filesystem.open_input_file(self.location.path)
        with stream:
            try:
                archive = zipfile.ZipFile(stream)
            except _BROKEN as error:
                raise self._broken(error) from error
            yield archive, stream.size()

    def _unpacked(self, archive: zipfile.ZipFile, folder: str, expansion: Expansion) -> Location:
        name = self.member.lower()
        path = os.path.join(folder, f"member{os.path.splitext(name.removesuffix('.gz'))[1]}")
        path += ".gz" if name.endswith(".gz") else ""
        with open(path, "wb") as copy:
            try:
                with archive.open(self.member) as packed:
                    while data := packed.read(_COPY_BYTES):
                        expansion.add(len(data))
                        copy.write(data)
            except OSError as error:
                if error.errno is not None:  # the storage or the disk, and no decompressor
                    raise StorageError(f"{self.uri} cannot be unpacked: {error}.") from error
                raise self._broken(error) from error
            except _BROKEN as error:
                raise self._broken(error) from error
        return standing_for(Location(self.uri, self.location.store, path), path)

    def _broken(self, error: BaseException) -> CorruptFileError:
        return CorruptFileError(f"{self.uri} is a broken or encrypted zip file: {error}.", uri=self.uri)
