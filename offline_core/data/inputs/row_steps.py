"""Steps from the raw columns of a row to those that are mapped: fill, compute, encode, put in bins."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

from pydantic import BaseModel, ConfigDict

from offline_core.data.inputs.bins import Bins
from offline_core.data.inputs.encoding import Encoding
from offline_core.errors import ConfigError, SchemaError

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)*")
Kind: TypeAlias = Literal["number", "text", "flag", "any"]
"""How a raw column is read: as float64, of which NaN is missing, lists of numbers as they are; text, of which the empty one is
missing; true or false; as it is."""


class BadRow(NamedTuple):
    """A row that cannot be used."""

    row: int
    error: SchemaError


class RowSteps(BaseModel):
    """What is done with each row by itself, in this order; a step sees what the ones before it made."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    columns: dict[str, Kind] = {}
    """The raw columns that the steps read; `sensors.tin` is a field of a struct, or a column of that name."""
    fill: dict[str, bool | float | str] = {}
    """In place of nulls and NaN, in raw columns and in computed ones as soon as they are there."""
    computed: dict[str, str] = {}
    """Columns by expressions, each of which needs none that comes later."""
    encode: dict[str, Encoding] = {}
    """Replace the column."""
    bins: dict[str, Bins] = {}
    """Replace the column by the number of the bin."""

    def of(self, names: Iterable[str]) -> RowSteps:
        """Return only the steps that columns of these names need."""
        wanted, waiting = set[str](), list(names)
        while waiting:
            if (name := waiting.pop()) not in wanted:
                wanted.add(name)
                waiting += names_in(self.computed[name]) if name in self.computed else ()
        own = {
            field: {name: step for name, step in getattr(self, field).items() if name in wanted}
            for field in RowSteps.model_fields
        }
        return RowSteps(**own)


def as_sql(name: str) -> str:
    """A column in an expression: quoted, unless its name means it as it is."""
    with contextlib.suppress(ConfigError):
        if names_in(name) == [name] and _PLAIN.fullmatch(name):
            return name
    return '"{}"'.format(name.replace('"', '""'))


def names_in(text: str) -> list[str]:
    """The columns that an expression needs."""
    from offline_core.runtime.sql import sql_expression

    return list(dict.fromkeys(sql_expression(text).meta.root_names()))
