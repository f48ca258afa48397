"""The base of readers of one file or folder, and what readers of named arrays share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from offline_core.data.formats.sources.expansion import MAX_EXPANSION
from offline_core.data.store.location import Location
from offline_core.errors import SchemaError

BATCH_BYTES = 32 * 2**20
"""Aim for a batch."""


@dataclass(frozen=True)
class LocatedReader:
    """A `StepReader` of one file or folder."""

    location: Location
    max_expansion: float = field(default=MAX_EXPANSION, kw_only=True)
    """See `Expansion`."""

    @property
    def uri(self) -> str:
        return self.location.uri


def common_length(arrays: Mapping[str, Any], uri: str, hint: str = "") -> int:
    """The number of rows that all arrays have.

    Raises:
        SchemaError: they differ.
    """
    rows = {name: str(array.shape[0]) if array.ndim else "none" for name, array in arrays.items()}
    if "none" in rows.values() or len(set(rows.values())) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in rows.items())
        raise SchemaError(
            f"The arrays of {uri} do not all have one row a step; their rows are: {listed}. Choose those that do with "
            f"source.columns.{hint}"
        )
    return int(next(iter(rows.values()), 0))
