"""Source files of modules, found without importing anything."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any


def module_digest(module: str) -> str | None:
    """Return 16 hex digits of the module's file; None if it has none."""
    try:
        origin = file_of(module)
        return None if origin is None else hashlib.sha256(Path(origin).read_bytes()).hexdigest()[:16]
    except OSError:
        return None


def is_as_loaded(value: Any) -> bool:
    """Whether a class or function is the code of its file as it is now; True for modules of other loaders than Python's."""
    module = sys.modules[value.__module__]
    if type(getattr(module, "__loader__", None)) is not SourceFileLoader or module.__file__ is None:
        return True
    members = [value, *vars(value).values()] if isinstance(value, type) else [value]
    codes = [
        member.__code__
        for member in members
        if isinstance(member, FunctionType) and member.__code__.co_filename == module.__file__
    ]
    try:
        now = set(_inside(compile(Path(module.__file__).read_bytes(), module.__file__, "exec", dont_inherit=True)))
    except (OSError, SyntaxError, ValueError):
        return False
    return now.issuperset(codes)


def _inside(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _inside(constant)


def file_of(module: str) -> str | None:
    """Return the file of a module without importing anything; None if it has none.

    `importlib.util.find_spec` would import the parent packages.
    """
    path: Sequence[str] | None = None
    spec: ModuleSpec | None = None
    parts = module.split(".")
    try:
        for end in range(1, len(parts) + 1):
            name = ".".join(parts[:end])
            loaded = sys.modules.get(name)
            spec = getattr(loaded, "__spec__", None) or next(
                (candidate for finder in sys.meta_path if (candidate := finder.find_spec(name, path)) is not None), None
            )
            path = list(getattr(loaded, "__path__", None) or (spec and spec.submodule_search_locations) or [])
    except Exception:  # a finder of another package may raise anything
        return None
    return spec.origin if spec is not None and spec.has_location else None
