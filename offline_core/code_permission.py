"""Which code may be imported because a file names it.

A policy names the module of its network, and policies and datasets name the environment they come from. Files may come from
elsewhere, so that code is imported only if one of these holds:

- parameters on this machine have named it before, and it is found at the same path: they are remembered, one empty file each,
  below `$XDG_STATE_HOME/offline-rl-pipeline/named-code` (`~/.local/state/…`);
- `OFFLINE_ALLOW_CODE` is 1, or lists the module or a package around it;
- the caller says so (`allow_code`).

Code that parameters name is imported without a question.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from offline_core.code_files import file_of
from offline_core.config import Config, EnvironmentSpec
from offline_core.errors import UnsafeDataError
from offline_core.own_code import texts

ALLOW_CODE = "OFFLINE_ALLOW_CODE"


def remember_code(*configs: Config | None) -> None:
    """Allows files to name what these parameters of the caller name. A home that cannot be written remembers nothing."""
    for path, arguments in _named(configs):
        for name in _names(path, arguments):
            with contextlib.suppress(OSError):
                place = _place(name)
                if not place.exists():
                    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    place.touch()


def check_code(path: str, arguments: Any = None, *, file: str, instead: str) -> None:
    """To be called before what a file names is imported or made.

    Arguments:
        path: as `package.module:Name`.
        arguments: that the file gives to it, in which there may be names of modules, paths and addresses.
        file: its URI.
        instead: what the caller can do to have it, for the message.

    Raises:
        UnsafeDataError: nothing allows it.
    """
    for name in _names(path, arguments):
        if _is_allowed(name) or _place(name).exists():
            continue
        raise UnsafeDataError(
            f"{file} names {name!r}, which runs code or opens files of this machine, and no parameters have named it here "
            f"before. If you trust it, {instead} or set the variable {ALLOW_CODE}={name.partition(':')[0]}."
        )


def recorded_environment(environment: EnvironmentSpec | None, *, file: str) -> EnvironmentSpec | None:
    """The environment that a file names, to be made here.

    Raises:
        UnsafeDataError: it is code of a module that nothing allows.
    """
    if environment is not None:
        check_code(environment.id, environment.kwargs, file=file, instead="name it by the parameter environment.id")
    return environment


def _names(path: str, arguments: Any) -> Iterator[str]:
    """What leads to code or files: an import path, and texts among the arguments that may be one, a path or an address."""
    if ":" in path:
        yield path
    yield from (text for text in texts(arguments) if ":" in text or "/" in text or text.startswith("~"))


def _named(value: Any) -> Iterator[tuple[str, Any]]:
    """(import path, arguments) of the networks and environments in it: these are what files name."""
    match value:
        case EnvironmentSpec():
            yield value.id, value.kwargs
        case Config():
            yield from value.own_code.items()
            yield from _named([getattr(value, name) for name in type(value).model_fields])
        case list() | tuple():
            for item in value:
                yield from _named(item)


def _is_allowed(name: str) -> bool:
    module = name.partition(":")[0]
    allowed = [each.strip() for each in os.environ.get(ALLOW_CODE, "").split(",")]
    return "1" in allowed or any(each and (module == each or module.startswith(f"{each}.")) for each in allowed)


def _place(name: str) -> Path:
    """The file that stands for what is remembered: of this name, as it would be imported now."""
    module = name.partition(":")[0]
    known = hashlib.sha256(f"{name}\n{file_of(module)}".encode()).hexdigest()
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(home) / "offline-rl-pipeline" / "named-code" / known
