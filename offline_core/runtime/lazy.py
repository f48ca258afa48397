"""Torch for modules that are read before anything is learned: it is imported when it is first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any


class _Lazy:
    """Stands in for a module. At the first use it takes over the module's names, and from then on costs as little as that."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, name: str) -> Any:
        module = importlib.import_module(self.__name__)
        self.__dict__ = module.__dict__
        return getattr(module, name)


if TYPE_CHECKING:
    import torch as torch
else:
    torch = _Lazy("torch")
