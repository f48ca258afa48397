"""Limit the memory of modules whose sizes a file names."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_MAKERS = frozenset({torch.empty, torch.zeros, torch.ones, torch.full})
"""The functions with which layers make their parameters."""


class AtMost(TorchFunctionMode):
    """Inside the block, tensors of so many bytes in all can be made from sizes; the next one is a RuntimeError."""

    def __init__(self, allowed_bytes: int) -> None:
        super().__init__()
        self._left = allowed_bytes

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _MAKERS:
            size = kwargs.get("size", args[0] if args and isinstance(args[0], Sequence) else args)
            dtype = kwargs.get("dtype") or torch.get_default_dtype()
            self._left -= math.prod(map(int, size)) * dtype.itemsize
            if self._left < 0:
                raise RuntimeError(f"a tensor of shape {tuple(size)} is larger than all of the weights")
        return func(*args, **kwargs)
