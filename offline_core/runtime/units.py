"""Times and sizes as people read them."""

from __future__ import annotations

from pydantic import ByteSize


def duration_text(seconds: float) -> str:
    """`3.1 s`, `45 s`, `12 min`, `1.8 h`."""
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def size_text(count: float) -> str:
    """Bytes: `75.8 KiB`."""
    return ByteSize(count).human_readable(separator=" ")
