"""Code of the user's own, which parameters name by its import path."""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import BaseModel, Field

from offline_core.config import Config
from offline_core.errors import ConfigError, OfflineError


class OwnCode(Config):
    """A class or function of yours, and what it is called with."""

    path: str = Field(
        pattern=r"^[\w.]+:\w+$",
        title="Import path",
        description="package.module:Name of a class or function that can be imported wherever this runs.",
    )
    arguments: dict[str, Any] = Field({}, title="Arguments", description="Keyword arguments for it, as JSON.")

    @property
    def own_code(self) -> dict[str, Any]:
        return {self.path: self.arguments}

    def __str__(self) -> str:
        return self.path

    def make(self, what: str, *given: Any, **named: Any) -> Any:
        """A class is called with what is given and the arguments; a function is not yet, but has its arguments bound.

        Arguments:
            what: a word for errors, such as "connector".

        Raises:
            ConfigError: it cannot be imported, is neither, or does not take the arguments.
        """
        found = imported(self.path, what)
        try:
            if inspect.isclass(found):
                return found(*given, **named, **self.arguments)
            inspect.signature(found).bind_partial(**self.arguments)
        except OfflineError:
            raise
        except Exception as error:  # somebody else's code raises what it likes
            names = ", ".join(self.arguments) or "no arguments"  # whose values may be secret
            raise ConfigError(f"The {what} {self.path} cannot be made with {names}: {error!r}") from error
        return functools.partial(found, **self.arguments) if self.arguments else found


_IMPORTED: dict[str, str | None] = {}
"""Digests of modules as they were imported by this process."""


def imported(path: str, what: str) -> Any:
    """What `package.module:Name` names.

    Raises:
        ConfigError: there is no such thing, or its module cannot be imported.
    """
    module, _, name = path.partition(":")
    if module == "__main__":
        raise ConfigError(f"The {what} {path!r} is in the script that runs: move it to a file that other processes can import.")
    try:
        return getattr(import_module(module), name)
    except Exception as error:  # a module of the user's may raise anything while it is imported
        raise ConfigError(
            f"The {what} {path!r} cannot be imported: {error!r}. Is its package installed here, or its folder the current one?"
        ) from error


def import_module(name: str) -> ModuleType:
    """A module of the user's, whose file is remembered as it was; raises whatever the module does."""
    module = importlib.import_module(name)
    if name not in _IMPORTED:
        _IMPORTED[name] = _digest(name)
    return module


def code_digests(config: BaseModel) -> dict[str, str]:
    """16 hex digits each, of the user's own code that these parameters name, and of what it is given to read.

    By import path: of the module's file. By path: of the names, sizes and times of the local file, or of the files in the
    folder, that an argument for such code names; hidden ones (`_…`, `.…`) do not count.

    A change is another operation, so what was made with it is made anew. What a module's file imports is not seen, nor is a
    module that is no file, nor what lies in a bucket.

    Raises:
        ConfigError: a file is not any more what this process has imported.
    """
    found = dict[str, str]()
    for path, arguments in _own_code(config):
        module = path.partition(":")[0]
        if digest := _digest(module):
            if module in sys.modules and _IMPORTED.get(module, digest) != digest:
                raise ConfigError(f"The file of {path} was changed after this process had imported it: start anew.")
            found[path] = digest
        found |= {text: digest for text in texts(arguments) if (digest := _files_digest(text))}
    return dict(sorted(found.items()))


def _own_code(value: Any) -> Iterator[tuple[str, Any]]:
    """(import path, arguments) of all that is named in it."""
    if isinstance(value, BaseModel):
        yield from value.own_code.items() if isinstance(value, Config) else ()
        for name in type(value).model_fields:
            yield from _own_code(getattr(value, name))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _own_code(item)


def texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for item in value.values():
                yield from texts(item)
        case list() | tuple():
            for item in value:
                yield from texts(item)


def _files_digest(text: str) -> str | None:
    """Of the file or folder that it names; None if there is none."""
    place = Path(text)
    if place.name in ("", ".."):  # an empty text, a separator: no folder that anybody means to name
        return None
    try:
        files = [place] if place.is_file() else [file for file in place.rglob("*") if file.is_file()]
        facts = [(file.relative_to(place).as_posix(), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    except (OSError, ValueError):  # no text that a path could be, or nothing that may be looked at
        return None
    seen = sorted(fact for fact in facts if not any(part.startswith(("_", ".")) for part in Path(fact[0]).parts))
    return hashlib.sha256(repr(seen).encode()).hexdigest()[:16] if seen else None


def _digest(module: str) -> str | None:
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
