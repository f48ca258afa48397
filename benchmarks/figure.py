"""What benchmarks share: a JSON line a figure, timing, and facts about the machine."""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil


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


def environment(*packages: str) -> dict[str, Any]:
    """The machine, Python, and the versions of these packages."""
    model, info = platform.processor() or platform.machine(), Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return {
        "processor": next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in packages},
    }
