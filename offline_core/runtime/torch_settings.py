"""Settings of Torch that a whole process shares, for the time of a block: threads, random state, precision."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Iterator

import torch

_recording = False


def is_traced() -> bool:
    """Return whether Torch's compiler, or a function of functions, looks at what is computed: no step may depend on numbers."""
    return _recording or torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


@contextlib.contextmanager
def traced() -> Iterator[None]:
    """Let `is_traced` say so inside the block, while operations are recorded as they run."""
    global _recording
    before, _recording = _recording, True
    try:
        yield
    finally:
        _recording = before


@contextlib.contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Use `count` threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def isolated_torch(threads: int) -> Iterator[None]:
    """Set Torch's threads, and restore them and its random state afterwards."""
    with torch_threads(threads), torch.random.fork_rng(devices=gpus_in_use()):
        yield


def gpus_in_use() -> list[int]:
    """Return the number of the GPU that this process computes on, if it does; to ask for another's state would start that."""
    return [torch.cuda.current_device()] if torch.cuda.is_initialized() else []


@contextlib.contextmanager
def bfloat16_products() -> Iterator[None]:
    """Let matrix products round their float32 inputs to bfloat16 (on a CPU with AMX several times as fast); sums do not."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


KEPT_BYTES = 2**27
"""Freed memory that a process keeps at most, see `keep_freed_memory`."""


@functools.cache
def keep_freed_memory() -> None:
    """Let the C library keep freed memory for the next update: given back, it would come again page by page, filled with zeros.

    An update of CQL with 7,680 sampled actions made 1,600 to 6,000 page faults, a tenth of its time; now it makes one. Only
    glibc can be told so; elsewhere nothing changes.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):
        return
    trim_threshold, mmap_threshold = -1, -3  # from malloc.h
    mallopt(mmap_threshold, KEPT_BYTES // 4)
    mallopt(trim_threshold, KEPT_BYTES)
