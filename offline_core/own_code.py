"""Code of the user's own, which parameters name by its import path."""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path, PurePath
from types import ModuleType
from typing import Any

from pydantic import BaseModel, Field, model_validator

from offline_core.code_files import module_digest
from offline_core.config import Config
from offline_core.errors import ConfigError, OfflineError
from offline_core.python_object import Arguments, ImportPath, PythonObject, given


class OwnCode(Config):
    """A class or function of yours, and what it is called with."""

    path: ImportPath = Field(
        title="Import path",
        description="package.module:Name of a class or function that can be imported wherever this runs.",
    )
    arguments: Arguments = Field({}, title="Arguments", description="Keyword arguments for it, as JSON.")

    @model_validator(mode="before")
    @classmethod
    def _object(cls, value: Any) -> Any:
        """From Python, the class or function alone is enough."""
        return {"path": value} if isinstance(value, PythonObject) or callable(value) else value

    @property
    def own_code(self) -> dict[str, Any]:
        return {str(self.path): self.arguments}

    def __str__(self) -> str:
        return str(self.path)

    def make(self, what: str, *values: Any, **named: Any) -> Any:
        """A class is called with these values and the arguments; a function is not yet, but has its arguments bound.

        Arguments:
            what: a word for errors, such as "connector".

        Raises:
            ConfigError: it cannot be imported, is neither, or does not take the arguments.
        """
        found, arguments = imported(self.path, what), given(self.arguments)
        try:
            if inspect.isclass(found):
                return found(*values, **named, **arguments)
            inspect.signature(found).bind_partial(**arguments)
        except OfflineError:
            raise
        except Exception as error:  # somebody else's code raises what it likes
            names = ", ".join(arguments) or "no arguments"  # whose values may be secret
            raise ConfigError(f"The {what} {self.path} cannot be made with {names}: {error!r}") from error
        return functools.partial(found, **arguments) if arguments else found


_IMPORTED: dict[str, str | None] = {}
"""Digests of modules as they were imported by this process."""


def imported(path: str | PythonObject, what: str) -> Any:
    """What `package.module:Name` names, or the object that the caller gave.

    Raises:
        ConfigError: there is no such thing, or its module cannot be imported.
    """
    if isinstance(path, PythonObject):
        return path.value
    module, _, name = path.partition(":")
    if module == "__main__":
        raise ConfigError(
            f"The {what} {path!r} is in the script that runs: give the class or function itself from Python, or move it to a "
            "file that other processes can import."
        )
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
        _IMPORTED[name] = module_digest(name)
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
        if digest := module_digest(module):
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
        case PurePath():
            yield str(value)
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
