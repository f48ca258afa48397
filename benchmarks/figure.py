"""How every benchmark prints: one JSON line a figure."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from typing import Any


def figure(name: str, value: float, unit: str, **fields: Any) -> None:
    """Prints `{"name": …, "value": …, "unit": …}` with further fields behind."""
    print(json.dumps({"name": name, "value": round(value, 4), "unit": unit, **fields}), flush=True)


def seconds(action: Callable[..., object], *arguments: Any, **named: Any) -> float:
    """Wall time of `action(*arguments, **named)`."""
    start = time.perf_counter()
    action(*arguments, **named)
    return time.perf_counter() - start


def median_seconds(action: Callable[[], object], *, repeats: int) -> float:
    """Median wall time of `repeats` calls."""
    return statistics.median(seconds(action) for _ in range(repeats))
