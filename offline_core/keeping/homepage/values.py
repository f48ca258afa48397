"""Values as the page's data holds them: JSON that any browser reads."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from offline_core.data.datasets.statistics import Summary

Curve = Sequence[tuple[int, float]]


def number(value: float | int | None, digits: int = 6) -> float | int | None:
    """A number with so many significant digits; None for one that is not finite, which JSON cannot hold."""
    if value is None or isinstance(value, int):
        return value
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


def summary(of: Summary) -> list[float | int | None]:
    """[mean, standard deviation, minimum, maximum]."""
    return [number(value) for value in (of.mean, of.std, of.min, of.max)] if of.count else []


def minute(at: datetime) -> str:
    """A time in UTC, to the minute; sorts as text."""
    return f"{at:%Y-%m-%d %H:%M}"


def minute_now() -> str:
    """The time that it is."""
    return minute(datetime.now(UTC))


def thinned(curve: Curve, most: int) -> list[list[float | int | None]]:
    """[xs, ys] of at most so many points, evenly chosen, the last one included."""
    if len(curve) > most:
        last = len(curve) - 1
        curve = [curve[round(i * last / (most - 1))] for i in range(most)] if most > 1 else [curve[last]]
    return [[number(x) for x, _ in curve], [number(y, 5) for _, y in curve]]


def rows_of(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Rows by name as a list has them: the names of the fields once, and of each row its values in their order."""
    fields = [*next(iter(rows.values()), {})]
    return {"fields": fields, "rows": {name: [row[field] for field in fields] for name, row in rows.items()}}


def dumps(value: Any) -> str:
    """JSON that is safe inside a <script> element: no text in it can end the element or begin a comment."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False, default=str)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").replace("\u2028", "\\u2028")
