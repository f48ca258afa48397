"""Columns of a source that are not mapped: kept beside the steps where they can be, left out and said where not."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from offline_core.data.episodes import nested
from offline_core.data.episodes.arrow import to_arrow
from offline_core.data.episodes.nested import Nested
from offline_core.data.formats.packed import read_foreign_column
from offline_core.data.importing.values import like
from offline_core.errors import DataError, OfflineError, SchemaError


@dataclass
class ExtraColumns:
    """The extra columns of the first rows. Each row has all of them, so one that some rows lack is left out."""

    templates: dict[str, Nested] | None = None
    """Empty arrays of their types, once they are known."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Columns that cannot be kept, and why."""

    def arrays(self, table: pa.Table, names: Collection[str]) -> dict[str, pa.Array]:
        """The columns of good rows; zeros for what is like the first rows no more, and has to be dropped of all of them.

        Arguments:
            names: the columns of `table` that are not mapped.
        """
        there = {each.name: None for each in table.schema if each.name in names and not pa.types.is_null(each.type)}
        if self.templates is None:
            found = {name: array for name in there if (array := self._array(table, name, None)) is not None}
            self.templates = {name: read_foreign_column(pa.table({name: array[:0]}), name) for name, array in found.items()}
            return found
        for name in there.keys() - self.templates.keys():
            self.left_out.setdefault(name, "the rows before have none")
        arrays = {}
        for name, template in self.templates.items():
            array = self._array(table, name, template)
            arrays[name] = _zeros(template, table.num_rows, name) if array is None else array
        return arrays

    def drop(self, names: Iterable[str]) -> None:
        """Do not read these any more."""
        self.templates = {name: each for name, each in (self.templates or {}).items() if name not in {*names}}

    def check_alike(self) -> None:
        """Raises:
        SchemaError: a column is not what it was in the first rows.
        """
        for name in (self.templates or {}).keys() & self.left_out:
            raise SchemaError(f"Column {name!r}: {self.left_out[name]}. Choose the others by source.columns.")

    def _array(self, table: pa.Table, name: str, template: Nested | None) -> pa.Array | None:
        """None, and noted, if it cannot be kept."""
        try:
            if name not in table.column_names:
                raise SchemaError("later rows have none")
            tree = read_foreign_column(table, name)
            return to_arrow(tree if template is None else like(tree, template, name), name)
        except (OfflineError, pa.ArrowException) as error:
            if not isinstance(error, DataError | pa.ArrowException):
                raise
            self.left_out.setdefault(name, str(error).removeprefix(f"Column {name!r} ").rstrip("."))
        return None


def note_on(left_out: Mapping[str, str]) -> list[str]:
    """One sentence on all of them, if there are any."""
    if not left_out:
        return []
    each = "; ".join(f"{name} ({why})" for name, why in sorted(left_out.items()))
    return [
        f"Columns that are not mapped are left out where they cannot be kept: {each}. What you need of them make by "
        "columns.fill or columns.computed."
    ]


def _zeros(template: Nested, count: int, name: str) -> pa.Array:
    return to_arrow(nested.map_leaves(lambda leaf: np.zeros((count, *leaf.shape[1:]), leaf.dtype), template), name)
