"""Files that only appends read: Parquet below `<dataset>/_late`, listed in what the import keeps."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from offline_core.data.datasets.commit import discard
from offline_core.data.datasets.data_file import DataFile, FilesConfig
from offline_core.data.datasets.manifest import FileEntry
from offline_core.data.episodes import columns
from offline_core.data.importing.imported import Imported
from offline_core.data.store.location import Location
from offline_core.data.store.parquet_files import open_parquet, parquet_errors, read_footer
from offline_core.errors import StorageError

LATE = "_late"
SOURCE_ID = "source_id"


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


def imported_without(root: Location, imported: Imported, ids: Collection[str]) -> Imported:
    """The same without what is known of these ids of the source: files with a row of one are written again without it."""
    if not ids:
        return imported
    cuts = _without(root, imported.cuts, SOURCE_ID, ids, "cuts")
    return imported.model_copy(
        update={"cuts": cuts, "left_out": _without(root, imported.left_out, columns.EPS_ID, ids, "rows")}
    )


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
