"""Which modules may be imported by name: those that `OFFLINE_IMPORTS` lists and what is below them, or all if it is not set.

    OFFLINE_IMPORTS=examples,my_team.rewards

Whatever names the module: a parameter, or a file that was read, which needs a permission of its own besides (see
`code_permission`). What an allowed module imports itself is not looked at.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from offline_core.errors import ConfigError

VARIABLE = "OFFLINE_IMPORTS"
OWN = "offline_core"


def check_import(module: str) -> None:
    """Check a module against `OFFLINE_IMPORTS`.

    Raises:
        ConfigError: it is neither listed, nor below a listed one, nor this package's.
    """
    allowed = listed(os.environ.get(VARIABLE, ""))
    if allowed and not is_in(module, [OWN, *allowed]):
        raise ConfigError(f"The module {module!r} is none that {VARIABLE} allows here: {', '.join(allowed)}.")


def listed(text: str) -> list[str]:
    """The names between commas."""
    return [name for part in text.split(",") if (name := part.strip())]


def is_in(module: str, packages: Iterable[str]) -> bool:
    """Whether a module is one of these, or below one."""
    return any(module == package or module.startswith(f"{package}.") for package in packages)
