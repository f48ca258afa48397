"""Durations, dates, sizes, lists and long texts as people read and write them."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, ByteSize, TypeAdapter, WithJsonSchema

_SIZE = TypeAdapter(ByteSize)
_SHOWN = [{"type": "integer", "title": "Bytes"}, {"type": "string", "title": "With a unit", "examples": ["128 MiB"]}]


def duration_text(seconds: float) -> str:
    """`3.1 s`, `45 s`, `3 min 5 s`, `12 min`, `1.8 h`, `3.5 days`; what is shorter than a second as `0.25 s`, `3e-06 s`."""
    if seconds < 1:
        return f"{seconds:.2g} s"
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    if seconds < 600 and (rest := round(seconds) % 60):
        return f"{round(seconds) // 60} min {rest} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:,.1f} days"


def date_text(nanoseconds: float) -> str:
    """A time since 1970 in UTC, to the second: `2026-01-31 12:30:00`."""
    return str(np.datetime64(round(nanoseconds / 1e9), "s")).replace("T", " ")


def count_text(count: int, noun: str, nouns: str = "") -> str:
    """`1 episode`, `1,200 episodes`; of a noun whose plural is no -s, that has to be given."""
    return f"{count:,} {noun if count == 1 else nouns or f'{noun}s'}"


def list_text(values: Collection[object], most: int, *, separator: str = ", ") -> str:
    """`a, b, c`; of more than `most` the first ones, as in `a, b and 1,200 more`."""
    shown = separator.join(map(str, itertools.islice(values, most)))
    return f"{shown} and {len(values) - most:,} more" if len(values) > most else shown


def cut_text(text: str, most: int) -> str:
    """At most so many characters; the end of a longer text is cut, with …"""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def size_text(count: float) -> str:
    """Bytes: `75.8 kB`, `1.2 MB`."""
    return ByteSize(count).human_readable(decimal=True, separator=" ").replace("KB", "kB")


def number_text(value: float, *, sign: str = "") -> str:
    """Four digits, and no powers of ten from one to a million: `0.04577`, `57.05`, `11,630`; with sign="+" as `+57.05`.

    What is below 1e-12 is what a sum of floats leaves of a zero, and so `0`.
    """
    value = 0.0 if abs(value) < 1e-12 else float(value)
    is_large = 1e4 <= abs(value) < 1e6
    return f"{float(f'{value:.4g}'):{sign},.0f}" if is_large else f"{value:{sign},.4g}"


def _bytes_of(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return int(_SIZE.validate_python(value))
    except ValueError:
        raise ValueError("this is no size: write a number of bytes, or one with a unit, such as 128 MiB or 1.5 GB") from None


ByteCount = Annotated[int, BeforeValidator(_bytes_of), WithJsonSchema({"anyOf": _SHOWN})]
"""A number of bytes, or text with a unit: "128 MiB", "1.5 GB"."""
