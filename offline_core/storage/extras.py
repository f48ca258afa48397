"""Packages that only some formats need."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from offline_core.errors import ConfigError


@contextlib.contextmanager
def needs(extra: str) -> Iterator[None]:
    """Around the imports of what the optional dependencies `extra` bring.

    Raises:
        ConfigError: they are not installed; the message says how to.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"This format needs {error.name}; install it, in a checkout of this project: "
            f"pip install -c constraints.txt '.[{extra}]'."
        ) from error
