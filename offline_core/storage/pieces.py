"""A dataset in pieces that can be read anywhere, in any order: the row groups of its files, whole episodes each."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from offline_core.errors import SchemaError
from offline_core.storage.dataset import Dataset, parquet_errors, read_footer
from offline_core.storage.location import Location
from offline_core.storage.reader import schema_of


@dataclass(frozen=True, slots=True)
class Piece:
    """One row group; small, and may be sent to another process."""

    file: Location
    number: int

    def read(self, names: Sequence[str]) -> pa.Table:
        """Its rows with these columns.

        Raises:
            CorruptFileError: the file is damaged.
            StorageError: it cannot be read.
        """
        with parquet_errors(self.file.uri), pq.ParquetFile(self.file.path, filesystem=self.file.filesystem) as file:
            return file.read_row_group(self.number, columns=list(names))


def pieces(dataset: Dataset, names: Sequence[str]) -> list[Piece]:
    """The pieces of a dataset, in the order of its manifest.

    Raises:
        SchemaError: it lacks one of the columns `names`.
        CorruptFileError: a file is no readable Parquet file.
    """
    present = schema_of(dataset).names
    if missing := [name for name in names if name not in present]:
        raise SchemaError(f"{dataset.location.uri} has no column {', '.join(missing)}; it has {', '.join(present)}.")
    files = [dataset.location.child(entry.path) for entry in dataset.manifest.files]
    with ThreadPoolExecutor() as pool:  # the footers of thousands of files, or of a few far away
        counts = list(pool.map(lambda file: read_footer(file).num_row_groups, files))
    return [Piece(file, number) for file, count in zip(files, counts, strict=True) for number in range(count)]
