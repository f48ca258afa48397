"""The files that modules are in, found without importing anything."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path


def module_digest(module: str) -> str | None:
    """16 hex digits of the module's file; None if there is none."""
    try:
        origin = file_of(module)
        return None if origin is None else hashlib.sha256(Path(origin).read_bytes()).hexdigest()[:16]
    except OSError:
        return None


def file_of(module: str) -> str | None:
    """The file that would be imported, found without importing anything; None if there is none.

    `importlib.util.find_spec` imports the packages around it.
    """
    path: Sequence[str] | None = None
    spec: ModuleSpec | None = None
    parts = module.split(".")
    try:
        for end in range(1, len(parts) + 1):
            name = ".".join(parts[:end])
            loaded = sys.modules.get(name)
            spec = getattr(loaded, "__spec__", None) or _found_spec(name, path)
            path = list(getattr(loaded, "__path__", None) or (spec and spec.submodule_search_locations) or [])
    except Exception:  # a finder of another package may raise anything
        return None
    return spec.origin if spec is not None and spec.has_location else None


def _found_spec(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    return next((spec for finder in sys.meta_path if (spec := finder.find_spec(name, path)) is not None), None)
