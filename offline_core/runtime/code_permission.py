"""Permission to import code that a file names.

A policy names the module of its network; policies and datasets name their environment. Files may come from elsewhere, so
their code is imported only if one of these holds:

- parameters on this machine named it before, and it is at the same path: such names are kept, one empty file each, below
   `$XDG_STATE_HOME/offline-rl-pipeline/named-code` (`~/.local/state/…`);
- `OFFLINE_ALLOW_CODE` is 1, or lists the module or a package around it;
- the caller allows it (`allow_code`).

Code that parameters name is imported without a check, if `allowed_imports` lets it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from offline_core.errors import ConfigError, UnsafeDataError
from offline_core.runtime.allowed_imports import is_in, listed
from offline_core.runtime.code_files import file_of
from offline_core.runtime.config import Config, EnvironmentSpec
from offline_core.runtime.user_code import named_code, texts
from offline_core.secrets import has_masked

ALLOW_CODE = "OFFLINE_ALLOW_CODE"


def remember_code(*configs: Config | None) -> None:
    """Allow files to name the code that these parameters name; a read-only home keeps nothing."""
    for path, arguments in named_code(configs):
        for name in _names(path, arguments):
            with contextlib.suppress(OSError):
                marker = _marker(name)
                marker.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                marker.touch()


def check_code(path: str, arguments: Any = None, *, file: str, instead: str) -> None:
    """Check code that a file names, before it is imported or called.

    Arguments:
        path: as `package.module:Name`.
        arguments: its arguments in the file, perhaps with names of modules, paths and addresses.
        file: the URI of the file.
        instead: what the caller can do, for the message.

    Raises:
        UnsafeDataError: nothing allows it.
    """
    for name in _names(path, arguments):
        if _is_allowed(name) or _marker(name).exists():
            continue
        raise UnsafeDataError(
            f"{file} names {name!r}, which runs code or opens files of this machine, and no parameters have named it here "
            f"before. If you trust it, {instead} or set the variable {ALLOW_CODE}={name.partition(':')[0]}.",
            uri=file,
        )


def recorded_environment(environment: EnvironmentSpec | None, *, file: str) -> EnvironmentSpec | None:
    """Check and return the environment that a file names.

    Raises:
        ConfigError: it needs secrets, which are not in the file, and this process was not given them.
        UnsafeDataError: it is code of a module that nothing allows.
    """
    if environment is not None:
        check_code(environment.id, environment.kwargs, file=file, instead="name it by the parameter environment.id")
        if has_masked(environment.kwargs):
            raise ConfigError(
                f"{file} names the environment {environment.id!r} without the secrets among its arguments, which are never "
                "stored. Set environment.id and environment.kwargs again."
            )
    return environment


def _names(path: str, arguments: Any) -> Iterator[str]:
    """Yield what may lead to code or files: the import path, and arguments that look like one, a path or an address."""
    if ":" in path:
        yield path
    yield from (text for text in texts(arguments) if ":" in text or "/" in text or text.startswith("~"))


def _is_allowed(name: str) -> bool:
    allowed = listed(os.environ.get(ALLOW_CODE, ""))
    return "1" in allowed or is_in(name.partition(":")[0], allowed)


def _marker(name: str) -> Path:
    """Return the file that allows this name, as it would be imported now."""
    module = name.partition(":")[0]
    known = hashlib.sha256(f"{name}\n{file_of(module)}".encode()).hexdigest()
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(home) / "offline-rl-pipeline" / "named-code" / known
