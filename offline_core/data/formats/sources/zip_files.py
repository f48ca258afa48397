"""Read the files in a zip archive, as what their names say, or of a format that is given."""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from offline_core.data.formats.sources.expansion import CountedStream, Expansion
from offline_core.data.formats.sources.local_copy import local_stream, standing_for
from offline_core.data.formats.sources.readers import (
    FORMATS,
    SOURCE_ROW,
    ZIP,
    FileReader,
    format_by_content,
    formats_by_name,
    made,
    reader,
)
from offline_core.data.formats.sources.step_reader import Unreadable
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError, CorruptFileError, EmptyDatasetError

_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, pa.ArrowException)
"""What reading a damaged or encrypted one raises."""


@reader(ZIP, suffixes=(f".{ZIP}",), arguments=FORMATS["csv"].arguments)
@dataclass(frozen=True)
class ZipFile(FileReader):
    """One archive; each member is unpacked to a local disk by itself, and read by the format of its name."""

    pushes: ClassVar[tuple[str, ...]] = ("columns", "where")
    takes_others: ClassVar[bool] = True
    of: str | None = None
    """The format of all members; None: that of their names."""

    def batches(self) -> Iterator[pa.Table | Unreadable]:
        """See `StepReader`; rows are numbered through all members."""
        with local_stream(self.location) as stream, tempfile.TemporaryDirectory(prefix="offline-") as folder:
            expansion = Expansion(self.uri, stream.size(), self.max_expansion)
            try:
                archive = zipfile.ZipFile(stream)
                members = self._members(archive)
            except _BROKEN as error:
                raise self._broken(error) from error
            rows, formats = 0, set[str]()
            for member in members:
                file = self._unpacked(archive, member, folder, expansion)
                formats.add(format := self.of or format_by_content(file, formats_by_name(member)))
                if len(formats) > 1:
                    raise ConfigError(f"{self.uri} holds files of the formats {', '.join(sorted(formats))}: unpack it first.")
                how = {name: getattr(self, name) for name in ("columns", "where", "arguments", "max_expansion")}
                first = rows
                for batch in made(format, file, self.partition, **how).batches():
                    numbers = rows + np.arange(batch.num_rows)
                    if isinstance(batch, Unreadable):
                        yield batch if batch.row is None else batch._replace(row=first + batch.row)
                    elif SOURCE_ROW in batch.column_names:
                        numbers = first + batch[SOURCE_ROW].to_numpy()
                        place = batch.column_names.index(SOURCE_ROW)
                        yield batch.set_column(place, SOURCE_ROW, pa.array(numbers))
                    else:
                        yield batch.append_column(SOURCE_ROW, pa.array(numbers))
                    rows = max(rows, int(numbers[-1]) + 1 if len(numbers) else 0)
                os.remove(file.path)

    def _members(self, archive: zipfile.ZipFile) -> list[str]:
        names = [name for name in sorted(archive.namelist()) if not any(part[:1] in (".", "_") for part in name.split("/"))]
        kinds = {name: formats_by_name(name) for name in names}
        if found := [name for name, own in kinds.items() if own and self.format not in own and self.of in (None, *own)]:
            return found
        raise EmptyDatasetError(
            f"{self.uri} holds no file of a known format: {', '.join(names[:5]) or 'nothing'}. Unpack it first."
        )

    def _unpacked(self, archive: zipfile.ZipFile, member: str, folder: str, expansion: Expansion) -> Location:
        path = os.path.join(folder, f"member{''.join(os.path.splitext(member.lower().removesuffix('.gz'))[1:])}")
        path += ".gz" if member.lower().endswith(".gz") else ""
        try:
            with archive.open(member) as packed, open(path, "wb") as copy:
                shutil.copyfileobj(CountedStream(packed, expansion), copy)
        except _BROKEN as error:
            raise self._broken(error) from error
        return standing_for(Location(f"{self.uri}/{member}", self.location.store, path), path)

    def _broken(self, error: BaseException) -> CorruptFileError:
        return CorruptFileError(f"{self.uri} is a broken or encrypted zip file: {error}.", uri=self.uri)
