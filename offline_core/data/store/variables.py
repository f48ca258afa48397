"""`${NAME}` in the arguments of a filesystem: another environment variable, as for a secret."""

from __future__ import annotations

import os
import string
from typing import Any

from offline_core.errors import ConfigError


def with_variables(value: Any) -> Any:
    """Return the value with `${NAME}` replaced by environment variables.

    Raises:
        ConfigError: one is not set.
    """
    match value:
        case dict():
            return {key: with_variables(entry) for key, entry in value.items()}
        case list():
            return [with_variables(entry) for entry in value]
        case str():
            try:
                return string.Template(value).substitute(os.environ)
            except KeyError as error:
                raise ConfigError(f"OFFLINE_FILESYSTEMS needs the variable {error.args[0]}, which is not set.") from None
            except ValueError as error:
                raise ConfigError("OFFLINE_FILESYSTEMS: a $ that begins no ${NAME} is written $$.") from error
    return value
