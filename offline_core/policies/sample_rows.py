"""Random raw rows that an import would take, to compare exports on."""

from __future__ import annotations

import re

import numpy as np
import polars as pl

from offline_core.data.inputs.computing import stepped
from offline_core.data.inputs.input_columns import InputColumns
from offline_core.errors import ConfigError

MISSING_SHARE = 0.1
"""Of the values that may be missing."""
TRIES = 20
_TEXT = re.compile(r"'((?:[^']|'')*)'")


def rows_like(made_of: InputColumns, size: int, *, seed: int) -> pl.DataFrame:
    """So many rows of the raw columns: numbers of several magnitudes, known categories and texts of expressions, missing ones.

    Raises:
        ConfigError: of random rows hardly one is taken.
    """
    random, steps = np.random.default_rng(seed), made_of.steps
    texts = [text.replace("''", "'") for each in steps.computed.values() for text in _TEXT.findall(each)]
    found: list[pl.DataFrame] = []
    for _ in range(TRIES):
        columns: dict[str, pl.Series] = {}
        for name, kind in steps.columns.items():
            encoding = steps.encode.get(name)
            if kind == "flag":
                values = pl.Series(random.random(size) < 0.5)
            elif encoding is not None:
                values = pl.Series(
                    random.choice(np.array([*encoding.known, *(["?"] if encoding.other and encoding.is_text else [])]), size)
                )
            elif kind == "text":
                values = pl.Series(random.choice(np.array([*texts, "?"]), size))
            else:
                values = pl.Series(
                    random.choice([0.1, 1, 1, 20], size) * (random.normal(size=size) + random.integers(0, 3, size))
                )
            is_missing = random.random(size) < MISSING_SHARE * (name in steps.fill or (encoding is not None and encoding.other))
            columns[name] = values.to_frame("x").select(pl.when(pl.lit(pl.Series(~is_missing))).then(pl.col("x"))).to_series()
        frame = pl.DataFrame(columns)
        _, bad = stepped(steps, frame)
        good = np.ones(size, bool)
        good[[each.row for each in bad]] = False
        made = frame.filter(pl.Series(good))
        found.append(made.filter(_complete(made_of, made)))
        if sum(map(len, found)) >= size:
            return pl.concat(found).head(size)
    raise ConfigError(
        f"Of {TRIES * size:,} random rows only {sum(map(len, found)):,} give observations: values that have no fill are "
        "missing where an expression has no result. Give it one for all values, such as 'coalesce(…, 0)'."
    )


def _complete(made_of: InputColumns, frame: pl.DataFrame) -> pl.Series:
    """Which rows have observations without missing values."""
    made, _ = stepped(made_of.steps, frame)
    missing = np.zeros(len(frame), bool)
    for name in made_of.obs:
        values = made[name]
        missing |= (values.is_null() | values.is_nan() if values.dtype.is_float() else values.is_null()).to_numpy()
    return pl.Series(~missing)
