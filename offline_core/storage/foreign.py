"""Step tables that other programs wrote, RLlib above all, as tables in our columns and types.

RLlib's tables pack observations as base64(lz4(pickle)), carry Ray's own tensor type, have null-typed columns, no `t`, and
hold rows several times, because every write repeats all earlier ones.
"""

from __future__ import annotations

import base64
import binascii
import posixpath
from collections.abc import Iterable
from typing import Any

import lz4.frame
import numpy as np
import pyarrow as pa

from offline_core.episodes import nested
from offline_core.episodes.arrow import from_arrow, read_column, to_arrow
from offline_core.episodes.nested import Nested
from offline_core.episodes.unpickle import load_array, load_nested
from offline_core.errors import CorruptFileError, DataError, SchemaError, UnsafeDataError
from offline_core.storage.dataset import Dataset
from offline_core.storage.reader import row_groups

PACKED = "BCJNGG"
"""How base64 of an lz4 frame begins."""
_PICKLED = "ray.data.arrow_pickled_object"
"""Ray's type for what Arrow has none for, such as observations of Tuple spaces."""
MAX_VALUE_BYTES = 256 * 2**20
"""One packed value that unpacks to more is refused."""


def step_table(dataset: Dataset) -> tuple[pa.Table, int]:
    """(all distinct steps in our columns and types, number of duplicate rows left out).

    A row counts as a duplicate as far as another folder of files (RLlib makes one for each write) holds it as often: a
    step that an episode really took twice stays there twice.

    Raises:
        DataError: a value cannot be read; the message names the file.
    """
    parts, folders = [], []
    for group in row_groups(dataset):
        try:
            part = canonical(group.read())
        except DataError as error:
            raise type(error)(f"{group.uri}: {error}") from error
        parts.append(part)
        folders += [posixpath.dirname(group.uri)] * part.num_rows
    try:
        table = pa.concat_tables(parts).combine_chunks()
    except pa.ArrowInvalid as error:
        raise SchemaError(f"The files of {dataset.location.uri} do not have the same columns: {error}") from error
    keep = _distinct(table, np.unique(folders, return_inverse=True)[1])
    return table.filter(pa.array(keep)), int((~keep).sum())


def canonical(table: pa.Table) -> pa.Table:
    """The same rows with unpacked values and our types; columns without a type are left out, for they hold nothing."""
    arrays, fields = [], []
    for field in table.schema:
        if pa.types.is_null(field.type):
            continue
        value = read_foreign_column(table, field.name)
        arrays.append(to_arrow(value, field.name))
        fields.append(pa.field(field.name, arrays[-1].type, nullable=False))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def read_foreign_column(table: pa.Table, name: str) -> Nested:
    """The nested arrays in a column, unpacked if RLlib or Ray packed its values one by one.

    Raises:
        DataError: a value is missing, differs in shape from the others, or cannot be unpacked.
    """
    column, field = table[name], table.schema.field(name)
    text = pa.types.is_string(field.type) or pa.types.is_large_string(field.type) or pa.types.is_string_view(field.type)
    if text and len(column) and str(column[0]).startswith(PACKED):
        return unpack_values(column.to_pylist(), name)
    extension = getattr(field.type, "extension_name", (field.metadata or {}).get(b"ARROW:extension:name", b"").decode())
    if extension == _PICKLED:
        if column.null_count:
            raise SchemaError(f"Column {name!r} has {column.null_count} nulls among {len(column)} rows; fill or drop them first.")
        try:
            return nested.stack([load_nested(item) for item in column.cast(pa.binary()).to_pylist()], name)
        except DataError as error:
            raise type(error)(f"Column {name!r}: {error}") from error
    return read_column(table, name)


def unpack_values(texts: Iterable[Any], name: str) -> np.ndarray:
    """One array out of a column whose values are packed one by one.

    Raises:
        DataError: one is not packed, cannot be unpacked, or differs from the others in shape.
    """
    arrays = []
    for text in texts:
        if not isinstance(text, str) or not text.startswith(PACKED):
            raise SchemaError(f"Column {name!r} mixes packed arrays with other text: {str(text)[:40]!r}.")
        arrays.append(unpack_value(text))
    return nested.stack(arrays, name)  # type: ignore[no-any-return]


def unpack_value(text: str) -> np.ndarray:
    """The array that RLlib packed as base64(lz4(pickle)).

    Raises:
        CorruptFileError: broken base64 or lz4.
        UnsafeDataError: the pickle is more than an array, or unpacks to too much.
    """
    return load_array(_unpacked(text))


def unpack_column(text: str) -> Nested:
    """The whole column that RLlib packed in one: as `unpack_value`, and dicts or tuples of arrays for composite spaces."""
    return load_nested(_unpacked(text))


def _unpacked(text: str) -> bytes:
    try:
        decompressor = lz4.frame.LZ4FrameDecompressor()
        data = decompressor.decompress(base64.b64decode(text, validate=True), max_length=MAX_VALUE_BYTES)
    except (binascii.Error, RuntimeError, ValueError) as error:
        raise CorruptFileError(f"A packed value cannot be unpacked: {error}.") from error
    if not decompressor.eof:
        if len(data) >= MAX_VALUE_BYTES:
            raise UnsafeDataError(f"A packed value unpacks to more than {MAX_VALUE_BYTES:,} bytes; refused.")
        raise CorruptFileError("A packed value is cut off.")
    return data  # type: ignore[no-any-return]


def _distinct(table: pa.Table, folder: np.ndarray) -> np.ndarray:
    """True for the rows to keep: of equal rows as many as the folder that has most of them holds, the first ones."""
    if table.num_rows == 0:
        return np.zeros(0, bool)
    leaves = []
    for name in table.column_names:
        for array in nested.leaves(from_arrow(table[name], name)):
            flat = np.ascontiguousarray(array).reshape(len(array), -1)
            leaves.append(flat.view(np.uint8).reshape(len(array), -1))
    rows = np.ascontiguousarray(np.concatenate(leaves, axis=1))
    same = np.unique(rows.view(np.dtype((np.void, rows.shape[1]))).ravel(), return_inverse=True)[1]
    occurrence = _rank_within(same)
    occurrence_in_folder = _rank_within(same * (folder.max(initial=0) + 1) + folder)
    most = np.zeros(same.max(initial=-1) + 1, np.int64)
    np.maximum.at(most, same, occurrence_in_folder + 1)
    return occurrence < most[same]


def _rank_within(groups: np.ndarray) -> np.ndarray:
    """For each position, how many earlier positions have the same value."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    ranks = np.arange(len(groups)) - np.repeat(starts, np.diff(np.concatenate([starts, [len(groups)]])))
    result = np.empty_like(ranks)
    result[order] = ranks
    return result
