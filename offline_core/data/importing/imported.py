"""What an import keeps for appends to it: in its manifest, and in Parquet files below `<dataset>/_late` that this lists."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from offline_core.data.datasets.commit import discard
from offline_core.data.datasets.data_file import DataFile, FilesConfig
from offline_core.data.datasets.manifest import FileEntry, Manifest
from offline_core.data.episodes import columns
from offline_core.data.episodes.arrow import refuse_extension_types
from offline_core.data.importing.action_units import Range
from offline_core.data.store.location import Location
from offline_core.data.store.parquet_files import open_parquet, parquet_errors, read_footer
from offline_core.errors import StorageError
from offline_core.runtime.result import StoredModel

LATE = "_late"
SOURCE_ID = "source_id"


class SourceFile(StoredModel):
    """A file that an import has read, so that an append leaves it out."""

    uri: str
    bytes: int
    changed_ns: int | None = None
    """Time of its last change, nanoseconds since 1970; None: its storage has none."""
    sha256: str | None = None
    """The SHA-256 of its content; None if it was read without `append`."""
    waits: bool = False
    """Rows of it had no partner in a join: it is read again when the join gets another file."""


class Imported(StoredModel):
    """What an append has to know of the imports before it.

    The manifest has it as `kept`. Files of `cuts` and `left_out` hold values of the source and belong to the version.
    """

    sources: list[SourceFile] = Field([])
    """The files of this version and of those it was appended to, by URI."""
    joined: list[SourceFile] = Field([])
    """The files of the joins of these versions, by URI."""
    order: str = ""
    """How steps were ordered: t, time, linked, stored or single_step; empty: files of episodes."""
    recorded_action_range: list[Any] | None = None
    """Declared or inferred: [low, high, dtype] of numbers or arrays."""
    settled: dict[str, Any] = Field({})
    """Parameters that were not given, and that the import found by itself."""
    arrow_schema: str = ""
    """base64 of the Arrow schema of the rows, under canonical names."""
    cuts: list[FileEntry] = Field([])
    """Parquet; a row for each episode that is not all of its source's: `CUTS` in `importing/stored.py`."""
    left_out: list[FileEntry] = Field([])
    """Parquet; rows in canonical columns that are in no episode because it is incomplete: they wait for late ones."""

    has_lost: bool = False
    """Some of its rows could not be read."""

    @classmethod
    def of(cls, manifest: Manifest) -> Imported | None:
        """What the import kept that wrote a version; None if another operation did, or a version of it that kept nothing."""
        return None if manifest.kept is None else cls.model_validate(manifest.kept)

    @property
    def kept(self) -> dict[str, Any]:
        """For the manifest."""
        return self.model_dump(exclude_none=True)

    @property
    def row_schema(self) -> pa.Schema:
        """The schema of the rows, under canonical names."""
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self.arrow_schema)))
        refuse_extension_types(schema, "the dataset's manifest")
        return schema

    @property
    def action_range(self) -> Range | None:
        """The one that actions were recorded in; None: they stay as they are."""
        if self.recorded_action_range is None:
            return None
        low, high, dtype = self.recorded_action_range
        return (float(low), float(high)) if np.ndim(low) == 0 else (np.array(low, dtype), np.array(high, dtype))

    def with_rows(self, schema: pa.Schema | None, recorded: Range | None) -> Imported:
        """Return a copy with the schema of the rows (None for files of episodes) and the range of recorded actions."""
        low, high = (None, None) if recorded is None else map(np.asarray, recorded)
        stored = None if low is None or high is None else [low.tolist(), high.tolist(), str(low.dtype)]
        text = "" if schema is None else base64.b64encode(schema.serialize()).decode()
        return self.model_copy(update={"arrow_schema": text, "recorded_action_range": stored})

    def without(self, root: Location, ids: Collection[str]) -> Imported:
        """Return a copy without these source ids; files with rows of these ids are written again without them."""
        if not ids:
            return self
        cuts = _without(root, self.cuts, SOURCE_ID, ids, "cuts")
        return self.model_copy(update={"cuts": cuts, "left_out": _without(root, self.left_out, columns.EPS_ID, ids, "rows")})


def write_late(root: Location, name: str, rows: pa.Table) -> FileEntry:
    """Write a file below the folder of a dataset."""
    file = DataFile(root.child(LATE).make_folder(), name, rows.schema, FilesConfig())
    file.append(rows)
    entry = file.finish()
    return entry.model_copy(update={"path": f"{LATE}/{entry.path}"})


def read_late(root: Location, entry: FileEntry, names: Sequence[str] | None = None) -> pa.Table:
    """The rows of a file, with the columns `names` or all.

    Raises:
        CorruptFileError: it is not what was written.
    """
    file = root.child(entry.path)
    with parquet_errors(file.uri), open_parquet(file, read_footer(file, entry.footer_sha256)) as parquet:
        return parquet.read(columns=None if names is None else list(names))


def remove_late(root: Location, entries: Iterable[FileEntry]) -> None:
    """Remove files of an import that comes to nothing: alone they would look like data."""
    discard(root, entries)
    with contextlib.suppress(StorageError):  # there is none, or it has other files
        root.child(LATE).remove_empty_folder()


def _without(root: Location, entries: Sequence[FileEntry], column: str, ids: Collection[str], name: str) -> list[FileEntry]:
    kept: list[FileEntry] = []
    values = pa.array(sorted(ids), pa.string())
    for number, entry in enumerate(entries):
        if not pc.any(pc.is_in(read_late(root, entry, [column])[column], values)).as_py():
            kept.append(entry)
            continue
        rows = read_late(root, entry)
        rest = rows.filter(pc.invert(pc.is_in(rows[column], values)))
        kept += [write_late(root, f"{name}-{number:05d}", rest)] if rest.num_rows else []
    return kept
