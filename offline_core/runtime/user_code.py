"""User code, which parameters name by its import path, and its errors, with what failed and where."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import inspect
import sys
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from types import ModuleType
from typing import Any, TypeVar

from pydantic import BaseModel, Field, model_validator

from offline_core.errors import ConfigError, DataError, OfflineError
from offline_core.runtime.allowed_imports import check_import
from offline_core.runtime.code_files import module_digest
from offline_core.runtime.config import Config
from offline_core.runtime.python_object import Arguments, ImportPath, PythonObject, unwrapped
from offline_core.secrets import masked_text


class UserCode(Config):
    """A class or function of the user, and its arguments."""

    path: ImportPath = Field(
        description="package.module:Name of a class or function that can be imported wherever this runs.",
    )
    arguments: Arguments = Field({}, description="Keyword arguments for it, as JSON.")

    @model_validator(mode="before")
    @classmethod
    def _object(cls, value: Any) -> Any:
        """Accept the class or function alone, from Python."""
        return {"path": value} if isinstance(value, PythonObject) or callable(value) else value

    @property
    def user_code(self) -> dict[str, Any]:
        return {str(self.path): self.arguments}

    def __str__(self) -> str:
        return str(self.path)

    def make(self, what: str, *values: Any, **named: Any) -> Any:
        """Call a class with these values and the arguments; bind a function's arguments.

        Arguments:
            what: a word for errors, such as "connector".

        Raises:
            ConfigError: it cannot be imported, is neither, or does not take the arguments.
        """
        code, arguments = import_object(self.path, what), unwrapped(self.arguments)
        with making(what, self.path, self.arguments):
            if inspect.isclass(code):
                return code(*values, **named, **arguments)
            inspect.signature(code).bind_partial(**arguments)
        return functools.partial(code, **arguments) if arguments else code


T = TypeVar("T")

_PACKAGE = str(Path(__file__).parents[1])

_IMPORTED: dict[str, str | None] = {}
"""Digests of modules at the time when this process imported them."""


@contextlib.contextmanager
def making(what: str, path: str | PythonObject, arguments: Mapping[str, Any]) -> Iterator[None]:
    """Turn whatever user code raises while it is called with its arguments into a `ConfigError`; an `OfflineError` passes."""
    try:
        yield
    except OfflineError:
        raise
    except Exception as error:  # user code may raise anything
        names = ", ".join(arguments) or "no arguments"  # without values, which may be secret
        told = masked_text(repr(error), arguments)
        raise ConfigError(f"The {what} {path} cannot be made with {names}: {told}") from error


def import_object(path: str | PythonObject, what: str) -> Any:
    """Return what `package.module:Name` names, or the object that the caller gave.

    Raises:
        ConfigError: it does not exist, or its module cannot be imported.
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
    except OfflineError:
        raise
    except Exception as error:  # an import may raise anything
        raise ConfigError(
            f"The {what} {path!r} cannot be imported: {error!r}. Is its package installed here, or its folder the current one?"
        ) from error


def import_class(path: str | PythonObject, what: str, base: type[T]) -> type[T]:
    """Return the class that `package.module:Name` names.

    Raises:
        ConfigError: it cannot be imported, or is no subclass of `base`.
    """
    kind = import_object(path, what)
    if not (isinstance(kind, type) and issubclass(kind, base)):
        raise ConfigError(f"The {what} {path} has to be a subclass of {base.__module__.partition('.')[0]}'s {base.__name__}.")
    return kind


def import_module(name: str) -> ModuleType:
    """Import a user module and note its digest; raises whatever the module raises.

    Raises:
        ConfigError: `OFFLINE_IMPORTS` does not allow it.
    """
    check_import(name)
    module = importlib.import_module(name)
    if name not in _IMPORTED:
        _IMPORTED[name] = module_digest(name)
    return module


def check_imports(*parameters: Any) -> None:
    """Check the modules that parameters name, before anything is imported.

    Raises:
        ConfigError: `OFFLINE_IMPORTS` does not allow one.
    """
    for path, _ in _user_code(parameters):
        check_import(path.partition(":")[0])


def code_digests(config: BaseModel) -> dict[str, str]:
    """Return digests of the user code that these parameters name, and of the local files among its arguments.

    By import path: 16 hex digits of the module's file. By path: of the names, sizes and times of the file, or of the files in
    the folder, without hidden ones (`_…`, `.…`).

    A change makes another operation, so results are made anew. The digests omit what a module's file imports, modules without
    a file, and files in a bucket.

    Raises:
        ConfigError: a file changed after this process imported it.
    """
    digests = dict[str, str]()
    for path, arguments in _user_code(config):
        module = path.partition(":")[0]
        if digest := module_digest(module):
            if module in sys.modules and _IMPORTED.get(module, digest) != digest:
                raise ConfigError(f"The file of {path} was changed after this process had imported it: start a new process.")
            digests[path] = digest
        digests |= {text: digest for text in texts(arguments) if (digest := _files_digest(text))}
    return dict(sorted(digests.items()))


def named_code(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield (import path, arguments) of all code that parameters name; the id of a registered environment has no colon."""
    if isinstance(value, BaseModel):
        yield from value.user_code.items() if isinstance(value, Config) else ()
        for name in type(value).model_fields:
            yield from named_code(getattr(value, name))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from named_code(item)


def _user_code(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield those of `named_code` that are import paths."""
    return ((path, arguments) for path, arguments in named_code(value) if ":" in path)


def texts(value: Any) -> Iterator[str]:
    """Yield all texts and paths in nested arguments."""
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
    """Return the digest of the file or folder of that name; None if it does not exist."""
    path = Path(text)
    if path.name in ("", ".."):  # an empty text or a separator names no folder
        return None
    try:
        files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
        facts = [(file.relative_to(path).as_posix(), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    except (OSError, ValueError):  # not a path, or not readable
        return None
    seen = sorted(fact for fact in facts if not any(part.startswith(("_", ".")) for part in Path(fact[0]).parts))
    return hashlib.sha256(repr(seen).encode()).hexdigest()[:16] if seen else None


@contextlib.contextmanager
def user_errors(what: str, where: str, kind: type[OfflineError] = DataError) -> Iterator[None]:
    """Turn whatever user code raises in the block into a `kind`; an `OfflineError` passes unchanged.

    Arguments:
        what: the code, such as "filter examples.filter:upright".
        where: what it was called on, such as "on episode 7".
    """
    try:
        yield
    except (OfflineError, MemoryError):
        raise
    except Exception as error:  # user code may raise anything
        raise kind(
            f"The {what} failed {where}: {error!r} ({_line(error)}). Fix your function, or raise an OfflineError."
        ) from error


def _line(error: Exception) -> str:
    """Return the last line of user code in the traceback, which Ray does not send back."""
    passed = traceback.extract_tb(error.__traceback__)
    users = [frame for frame in passed if not frame.filename.startswith(_PACKAGE) and "site-packages" not in frame.filename]
    last = (users or passed)[-1]
    return f"{last.filename}, line {last.lineno}"
