"""Settings of Torch that a whole process shares, for the time of a block: threads, random state, precision."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


def is_traced() -> bool:
    """Return whether Torch's compiler, or a function of functions, looks at what is computed: no step may depend on numbers."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


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
    with torch_threads(threads), torch.random.fork_rng():
        yield


@contextlib.contextmanager
def bfloat16_products() -> Iterator[None]:
    """Let matrix products round their float32 inputs to bfloat16 (on a CPU with AMX several times as fast); sums do not."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
