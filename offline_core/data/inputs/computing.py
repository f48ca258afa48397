"""Steps on rows of raw columns, by Polars: the same in imports and serving."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable

import numpy as np
import polars as pl

from offline_core.data.inputs.encoding import Encoding
from offline_core.data.inputs.frames import with_nested
from offline_core.data.inputs.row_steps import BadRow, Kind, RowSteps, as_sql, names_in
from offline_core.errors import SchemaError, first_line
from offline_core.runtime.sql import shown, sql_expression
from offline_core.runtime.units import list_text

SEARCHED_ROWS = 4096
"""Up to so many rows are searched for those where an expression fails; of more, all are taken to fail if all probes do."""
PROBES = 64

_OF_TIMES = re.compile(r"(?i)\b(?:date_part\s*\(\s*'\w+'\s*,|strftime\s*\()\s*(\w+)\s*[,)]")
"""What a function of times is asked of, if that is a column."""
_TRUE, _FALSE = ["true", "1", "1.0"], ["false", "0", "0.0"]
_FAILED = (pl.exceptions.PolarsError, pl.exceptions.PanicException)


def stepped(steps: RowSteps, frame: pl.DataFrame) -> tuple[pl.DataFrame, list[BadRow]]:
    """Return all rows with the new columns, and the rows that cannot be used.

    Raises:
        SchemaError: a column is missing, or an expression does not fit the types of the columns.
    """
    frame = _in_utc(with_nested(frame, steps.columns))
    bad: list[BadRow] = []
    for name, kind in steps.columns.items():
        values, wrong = _read(frame[name], kind)
        bad += _listed(wrong, frame[name], lambda value, name=name, kind=kind: _no_kind(name, value, kind))  # type: ignore[misc]
        frame = frame.with_columns(_filled(steps, values.alias(name)))
    for name, text in steps.computed.items():
        values, failed = _evaluated(frame, name, text)
        values = _filled(steps, values)
        infinite = ~values.is_finite().fill_null(True).to_numpy() if values.dtype.is_float() else np.zeros(len(values), bool)
        bad += failed + _listed(infinite, values, lambda value, name=name, text=text: _not_finite(name, value, text))  # type: ignore[misc]
        frame = frame.with_columns(values)
    for name, encoding in steps.encode.items():
        codes = encoding.codes(frame[name])
        bad += _listed(codes < 0, frame[name], lambda value, name=name, e=encoding: _unknown(name, value, e))  # type: ignore[misc]
        frame = frame.with_columns(encoding.encoded(codes).alias(name))
    for name, bins in steps.bins.items():
        codes = bins.codes(frame[name].cast(pl.Float64).fill_null(np.nan).to_numpy())
        bad += _listed(codes < 0, frame[name], lambda value, name=name: _out_of_bins(name, value))  # type: ignore[misc]
        frame = frame.with_columns(pl.Series(name, codes))
    return frame, list({bad_row.row: bad_row for bad_row in reversed(bad)}.values())


def _in_utc(frame: pl.DataFrame) -> pl.DataFrame:
    """The frame with times of a zone in UTC: else one instant would have another hour in another file, or where it is acted."""
    kinds = {name: kind for name, kind in frame.schema.items() if isinstance(kind, pl.Datetime)}
    zoned = [name for name, kind in kinds.items() if kind.time_zone not in (None, "UTC")]
    return frame.with_columns(pl.col(zoned).dt.convert_time_zone("UTC")) if zoned else frame


def _filled(steps: RowSteps, values: pl.Series) -> pl.Series:
    if values.name not in steps.fill:
        return values
    value = steps.fill[values.name]
    if values.dtype.is_float():
        values = values.fill_nan(None)
    if values.dtype == pl.Null or (values.dtype == pl.String and 0 < values.null_count() == len(values)):  # an empty CSV column
        values = values.cast(pl.String if isinstance(value, str) else pl.Boolean if isinstance(value, bool) else pl.Float64)
    if isinstance(value, str) != (values.dtype == pl.String):
        raise SchemaError(f"Column {values.name!r} has type {values.dtype}, which {value!r} cannot fill.")
    if isinstance(value, float) and values.dtype.is_integer():
        value = int(value) if value.is_integer() else value
    return values.to_frame().select(pl.col(values.name).fill_null(value)).to_series()


def _read(values: pl.Series, kind: Kind) -> tuple[pl.Series, np.ndarray]:
    """(the column as that kind, (N,) bool which values are none of it and no missing ones)."""
    if values.dtype in (pl.Categorical, pl.Enum):
        values = values.cast(pl.String)
    if values.dtype == pl.String and kind != "any":
        values = values.replace("", None)
    is_null = values.is_null()
    try:
        match kind:
            case "number" if not isinstance(values.dtype, pl.List | pl.Array):
                values = values.str.strip_chars() if values.dtype == pl.String else values
                values = values.cast(pl.Float64, strict=False)
                is_null |= values.is_nan().fill_null(False)
                values = values.fill_nan(None)
            case "text":
                values = values.cast(pl.String)
            case "flag":
                texts = values.cast(pl.String).str.to_lowercase()
                values = texts.replace_strict(_TRUE + _FALSE, [True] * 3 + [False] * 3, default=None, return_dtype=pl.Boolean)
    except _FAILED as error:
        raise SchemaError(f"Column {values.name!r} has type {values.dtype} and holds no {kind}s.") from error
    return values, (values.is_null() & ~is_null).to_numpy()


def _evaluated(frame: pl.DataFrame, name: str, text: str) -> tuple[pl.Series, list[BadRow]]:
    """The column, null where the expression fails, and the rows where it does.

    Raises:
        SchemaError: it fails on any rows of these types.
    """
    expression = sql_expression(text).alias(name)
    try:
        kind = frame.clear(1).select(expression).to_series().dtype
    except _FAILED as error:
        named = names_in(text)
        types = ", ".join(f"{column} ({frame.schema[column]})" for column in named)
        said = f"Column {name!r}: {shown(text)} cannot be computed of {types}: {first_line(error)}."
        texts = [column for column in _OF_TIMES.findall(text) if frame.schema.get(column) == pl.String]
        if texts:
            said += f" Texts are read as times first, such as 2026-01-31T09:00:00Z by {_as_time(texts[0])}."
        raise SchemaError(said) from error
    good: list[pl.Series] = []
    bad: list[BadRow] = []
    waiting = [(0, frame.height)]
    while waiting:
        start, stop = waiting.pop()
        try:
            values = frame.slice(start, stop - start).select(expression).to_series()
            good.append(values if len(values) == stop - start else values.new_from_index(0, stop - start))
        except _FAILED as error:
            if stop - start == 1 or (
                stop - start > SEARCHED_ROWS and not _any_good(frame.slice(start, stop - start), expression)
            ):
                good.append(pl.Series(name, [None], dtype=kind).new_from_index(0, stop - start))
                reason = SchemaError(f"Column {name!r}: {shown(text)} fails: {first_line(error)}.", column=name)
                bad += [BadRow(row, reason) for row in range(start, stop)]
            else:
                half = (start + stop) // 2
                waiting += [(half, stop), (start, half)]
    return pl.concat(good) if good else pl.Series(name, [], dtype=kind), bad


def _any_good(frame: pl.DataFrame, expression: pl.Expr) -> bool:
    """Whether one of some rows, evenly spread, can be computed."""
    for row in np.unique(np.linspace(0, frame.height - 1, PROBES).astype(int)).tolist():
        with contextlib.suppress(*_FAILED):
            frame.slice(row, 1).select(expression)
            return True
    return False


def _as_time(name: str) -> str:
    """The expression that reads texts by ISO 8601, with seconds and an offset, as times."""
    return f"strptime({as_sql(name)}, '%Y-%m-%dT%H:%M:%S%#z')"


def _listed(wrong: np.ndarray, values: pl.Series, error: Callable[[object], SchemaError]) -> list[BadRow]:
    return [BadRow(row, error(values[row])) for row in np.flatnonzero(wrong).tolist()]


def _no_kind(name: str, value: object, kind: Kind) -> SchemaError:
    return SchemaError(f"Column {name!r} holds {value!r:.80}, which is no {kind}.", column=name)


def _not_finite(name: str, value: object, text: str) -> SchemaError:
    return SchemaError(f"Column {name!r}: {shown(text)} is {value}.", column=name)


def _unknown(name: str, value: object, encoding: Encoding) -> SchemaError:
    known = list_text(encoding.known, 10)
    problem = "is null" if value is None else f"holds {value!r:.80}"
    return SchemaError(
        f"Column {name!r} {problem}, which is none of its categories {known}; add it to them, set a fill, or other: true.",
        column=name,
    )


def _out_of_bins(name: str, value: object) -> SchemaError:
    return SchemaError(f"Column {name!r} is {value}, which lies in none of its bins.", column=name)
