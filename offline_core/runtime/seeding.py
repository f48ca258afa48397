"""Independent seeds from one, by name."""

from __future__ import annotations

import zlib

import numpy as np

_64_BITS = 2**64 - 1


def derive_seed(seed: int, *names: str | int) -> int:
    """Return a 31-bit seed; different names give independent streams (numpy's SeedSequence)."""
    key = tuple(zlib.crc32(name.encode()) if isinstance(name, str) else name for name in names)
    return int(np.random.SeedSequence(seed, spawn_key=key).generate_state(1)[0] >> 1)


def nth_seed(seed: int, number: int) -> int:
    """Return a 63-bit seed of its own for each number (SplitMix64: Steele et al. 2014); a hundredth of `derive_seed`'s time."""
    mixed = (seed + (number + 1) * 0x9E3779B97F4A7C15) & _64_BITS
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _64_BITS
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _64_BITS
    return (mixed ^ (mixed >> 31)) >> 1
