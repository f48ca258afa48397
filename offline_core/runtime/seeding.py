"""Independent seeds from one, by name."""

from __future__ import annotations

import zlib

import numpy as np


def derive_seed(seed: int, *names: str | int) -> int:
    """Return a 31-bit seed; different names give independent streams (numpy's SeedSequence)."""
    key = tuple(zlib.crc32(name.encode()) if isinstance(name, str) else name for name in names)
    return int(np.random.SeedSequence(seed, spawn_key=key).generate_state(1)[0] >> 1)
