"""A condition on the rows of a table, in SQL or as a Polars expression."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import polars as pl
import polars.selectors as cs

from offline_core.data.episodes import nested
from offline_core.errors import ConfigError, first_line
from offline_core.runtime.sql import shown, sql_condition


@dataclass(frozen=True, slots=True)
class Condition:
    """An expression that is true, false or null for each row, and the words for it."""

    text: str
    expression: pl.Expr

    @classmethod
    def sql(cls, text: str) -> Condition:
        """Polars' dialect of SQL, see `offline_core.runtime.sql`.

        Raises:
            ConfigError: it cannot be understood, or is more than a condition on columns.
        """
        return cls(shown(text), sql_condition(text))

    @property
    def names(self) -> set[str]:
        """The columns it looks at, `obs` for `obs/position`; none where only a table would show them, as for `*`."""
        try:
            return {name.partition(nested.PATH_SEPARATOR)[0] for name in self.expression.meta.root_names()}
        except pl.exceptions.PolarsError:
            return set()

    def require(self, present: Collection[str]) -> None:
        """Raises a ConfigError if it names a column that is not among these."""
        if unknown := sorted(self.names - set(present)):
            self.refuse(f"names the column {unknown[0]!r}. Columns are {', '.join(present)}.")

    def met(self, rows: pl.DataFrame, *, within: str | None = None) -> pl.Series:
        """Whether each row meets it, null where that is not known; aggregates are those of rows with equal `within`.

        Raises:
            ConfigError: it compares what cannot be, or gives something else than booleans.
        """
        met = self._of(rows, within)
        if met.dtype != pl.Boolean:
            self.refuse(f"gives {met.dtype} and not true or false.")
        return met

    def numbers(self, rows: pl.DataFrame, *, within: str) -> np.ndarray:
        """Return the value of the condition for each row, (rows,) float64.

        Raises:
            ConfigError: It gives no number, or none for some row.
        """
        values = self._of(rows, within)
        if not (values.dtype.is_numeric() or values.dtype == pl.Boolean):
            self.refuse(f"gives {values.dtype} and not numbers.")
        numbers = values.cast(pl.Float64).fill_null(np.nan).to_numpy()
        if not np.isfinite(numbers).all():
            self.refuse(f"gives no finite number for {rows.row(int((~np.isfinite(numbers)).argmax()), named=True)}.")
        return numbers

    def _of(self, rows: pl.DataFrame, within: str | None) -> pl.Series:
        expression = self.expression if within is None else self.expression.over(within)
        try:
            return rows.with_columns(expression.alias("met"))["met"]
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
            self.refuse(f"cannot be used: {first_line(error)}.")

    def refuse(self, reason: str) -> NoReturn:
        raise ConfigError(f"The condition {self.text} {reason}")


def without_nan(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with null for NaN, in lists too: Polars takes NaN as larger than any number."""
    return rows.with_columns(cs.float().fill_nan(None), cs.list(cs.float()).list.eval(pl.element().fill_nan(None)))
