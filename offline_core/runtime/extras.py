"""Optional dependencies."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from offline_core.errors import ConfigError


@contextlib.contextmanager
def require_extra(extra: str) -> Iterator[None]:
    """Guard imports of packages of the optional dependencies `extra`.

    Raises:
        ConfigError: they are not installed; the message says how to install them.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"This needs {error.name}; install it, in a checkout of this project: pip install -c constraints.txt '.[{extra}]'."
        ) from error
