"""Read NumPy archives: named arrays with the steps as first axis.

Format: `numpy.savez` and `numpy.savez_compressed`, a zip file of `.npy` members. Arrays of Python objects are pickles
there, and are refused.
"""

from __future__ import annotations

import lzma
import math
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from offline_core.data.episodes.arrow import to_arrow
from offline_core.data.formats.sources.expansion import Expansion
from offline_core.data.formats.sources.local_copy import local_stream
from offline_core.data.formats.sources.located_reader import BATCH_BYTES, LocatedReader, common_length
from offline_core.data.store.location import Location
from offline_core.errors import CorruptFileError, SchemaError, SpaceError, UnsafeDataError


@dataclass(frozen=True)
class NpzFile(LocatedReader):
    """One `.npz` file; every array becomes the column of its name.

    The format cannot be read in parts: all arrays are in memory at once.
    """

    columns: tuple[str, ...] | None = None
    """Only these arrays."""

    def batches(self) -> Iterator[pa.Table]:
        """See `StepReader`."""
        arrays = _load(self.location, self.columns, self.max_expansion)
        hint = " Keep the observation after the last step in an array of next observations, not as one more row."
        common_length(arrays, self.uri, hint)
        try:
            table = pa.table({name: to_arrow(array, name) for name, array in arrays.items()})
        except SpaceError as error:
            raise SpaceError(f"{self.uri}: {error} Choose other columns by source.columns.") from error
        step = max(1, BATCH_BYTES * table.num_rows // max(1, table.nbytes))
        for start in range(0, table.num_rows, step):
            yield table.slice(start, step)


def _load(location: Location, chosen: tuple[str, ...] | None, max_expansion: float) -> dict[str, np.ndarray]:
    with local_stream(location) as stream:
        return _arrays(stream, chosen, Expansion(location.uri, stream.size(), max_expansion))


def _arrays(stream: Any, chosen: tuple[str, ...] | None, expansion: Expansion) -> dict[str, np.ndarray]:
    uri = expansion.uri
    try:
        with zipfile.ZipFile(stream) as archive:
            members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
            if missing := [name for name in chosen or () if name not in members]:
                raise SchemaError(f"{uri} has no array {', '.join(missing)}; it has {', '.join(members)}.")
            wanted = {name: member for name, member in members.items() if chosen is None or name in chosen}
            expansion.add(sum(member.file_size for member in wanted.values()))  # no more is ever unpacked
            return {name: _member(archive, member) for name, member in wanted.items()}
    except (
        *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, ValueError),
        *(OverflowError, RuntimeError, NotImplementedError),  # encrypted, or packed in another way
    ) as error:
        if "allow_pickle" in str(error):
            raise UnsafeDataError(
                f"{uri} holds an array of Python objects, which is refused: reading it would run code. "
                "Save arrays of numbers or text instead."
            ) from error
        raise CorruptFileError(
            f"{uri} is not an .npz file, or damaged: {str(error).rstrip('.')}. Save it anew or fetch it again."
        ) from error


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    """Read one array.

    Raises:
        ValueError: it is not an array, or smaller than its header says.
    """
    with archive.open(member) as file:  # so that no memory is allocated for a false header
        is_short = np.lib.format.read_magic(file) == (1, 0)
        shape, _, dtype = (np.lib.format.read_array_header_1_0 if is_short else np.lib.format.read_array_header_2_0)(file)
        if not dtype.hasobject and math.prod(shape) * max(1, dtype.itemsize) > member.file_size:
            raise ValueError(f"{member.filename} claims {dtype} of shape {shape} in {member.file_size:,} bytes")
    with archive.open(member) as file:
        return np.lib.format.read_array(file, allow_pickle=False)
