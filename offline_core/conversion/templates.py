"""The types of the first rows, which all others have to fit: empty arrays of them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from offline_core.conversion.values import lost
from offline_core.episodes import columns, nested
from offline_core.episodes.arrow import read_column
from offline_core.episodes.nested import Nested
from offline_core.errors import SchemaError


def empty_arrays(table: pa.Table) -> dict[str, Nested]:
    """Templates of a canonical table: arrays without rows, Arrow's for maps and names."""
    none = table.slice(0, 0)
    arrow = {columns.INFOS, columns.RESET_INFOS, columns.CUSTOM_DATA, columns.EPS_ID, columns.AGENT_ID, columns.MODULE_ID}
    return {name: none[name].combine_chunks() if name in arrow else read_column(none, name) for name in none.column_names}


def like(tree: Nested, template: Nested, name: str) -> Nested:
    """The column in the types of the template, if they can be had without loss."""
    if isinstance(template, pa.Array):
        return tree
    now, before = nested.flatten(tree, name), nested.flatten(template, name)
    if now.keys() != before.keys():
        raise SchemaError(f"Column {name!r} has the parts {sorted(now)} where earlier rows have {sorted(before)}.")
    for path, array in now.items():
        wanted = before[path]
        if array.shape[1:] != wanted.shape[1:]:
            raise SchemaError(
                f"Column {path!r} has steps of shape {array.shape[1:]} where earlier rows have {wanted.shape[1:]}."
            )
        if not _fits(array, wanted.dtype):
            raise SchemaError(
                f"Column {path!r} is {array.dtype} where earlier rows have {wanted.dtype}; declare the environment or the "
                "spaces, or import the files separately."
            )
    return nested.map_leaves(lambda a, w: a if w.dtype.kind == "U" else a.astype(w.dtype, copy=False), tree, template)


def _fits(array: np.ndarray, dtype: np.dtype) -> bool:
    if array.dtype.kind == dtype.kind == "U" or np.can_cast(array.dtype, dtype, "safe"):
        return True
    is_whole = array.dtype.kind in "iu" and dtype.kind in "iuf"
    return is_whole and not (lost(array, dtype) | (array.astype(dtype).astype(array.dtype) != array)).any()
