"""Bring the rows of each episode together, whichever files they come from, with one part of them in memory.

Rows go to one of P parts by a hash of their episode id, as Arrow files below a folder that all workers can reach; then each
part is read by itself. This is the shuffle of a group-by, through storage.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterable, Iterator
from typing import IO

import numpy as np
import pyarrow as pa

from offline_core.data.episodes import columns
from offline_core.data.episodes.arrow import refuse_extension_types
from offline_core.data.importing.episode_ids import SOURCE_FILE
from offline_core.data.store.location import Location
from offline_core.data.store.storage_errors import storage_errors


def scatter(tables: Iterable[pa.Table], folder: Location, name: str, *, parts: int, ids_per_file: bool) -> None:
    """Append rows to the file `<part>/<name>.arrow` of their part.

    Raises:
        StorageError: the folder cannot be written.
    """
    writers: dict[int, pa.RecordBatchFileWriter] = {}
    with storage_errors("write", folder.uri), contextlib.ExitStack() as opened:  # what is closed after a failure fails again
        for table in tables:
            part = part_of(table, parts, ids_per_file=ids_per_file)
            table = table.take(pa.array(np.argsort(part, kind="stable")))
            ends = np.cumsum(np.bincount(part, minlength=parts))
            for number, (start, end) in enumerate(zip(np.concatenate([[0], ends[:-1]]), ends, strict=True)):
                if end == start:
                    continue
                if number not in writers:
                    stream = opened.enter_context(_stream(folder.child(f"{number:05d}/{name}.arrow")))
                    writers[number] = opened.enter_context(pa.ipc.new_file(stream, table.schema))
                writers[number].write_table(table.slice(start, end - start).combine_chunks())


@contextlib.contextmanager
def _stream(location: Location) -> Iterator[IO[bytes]]:
    """Open a file to write. Files for an object store are written locally first.

    Hundreds of files are open at once, and each upload would hold megabytes.
    """
    if location.is_local:
        location.filesystem.create_dir(location.parent.path, recursive=True)
        with location.filesystem.open_output_stream(location.path) as stream:
            yield stream
        return
    file = location.store.new_file(location.path)
    try:
        yield file
        location.store.put_file(file, location.path)
    finally:
        location.store.discard(file)


def part_of(table: pa.Table, parts: int, *, ids_per_file: bool) -> np.ndarray:
    """(N,) the part that each row goes to."""
    ids = table[columns.EPS_ID].combine_chunks().dictionary_encode()
    hashes = np.array([zlib.crc32(id.encode()) for id in ids.dictionary.to_pylist()], np.int64)
    of_row = hashes[ids.indices.to_numpy()]
    if ids_per_file:
        of_row = of_row + table[SOURCE_FILE].to_numpy().astype(np.int64) * 0x9E3779B1
    return of_row % parts  # type: ignore[no-any-return]


def read_part(folder: Location, part: int) -> pa.Table | None:
    """Read all rows of a part; None if there are none."""
    part_folder = folder.child(f"{part:05d}")
    tables = []
    for name in part_folder.files():
        file = part_folder.child(name)
        with storage_errors("read", file.uri), file.filesystem.open_input_file(file.path) as stream:
            rows = pa.ipc.open_file(stream.read_buffer())
            refuse_extension_types(rows.schema, file.uri)
            tables.append(rows.read_all())
    return pa.concat_tables(tables) if tables else None
