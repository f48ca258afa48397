"""Which locations may be read and written: those below the folders that `OFFLINE_ROOTS` names, or all if it is not set.

    OFFLINE_ROOTS="runs;/mnt/logs;s3://bucket/team/*"

Folders are separated by semicolons, and relative ones begin in the working directory; `/*` at the end changes nothing.
`Location.of` refuses all others, whatever names them: parameters, or a file that was read. Flows look at all of their
parameters before anything runs. Code that parameters name is not held back: it may do what its process may do, and
`offline_core.runtime.allowed_imports` says which code that is.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from offline_core.errors import ConfigError, LocationError

VARIABLE = "OFFLINE_ROOTS"


@dataclass(frozen=True)
class IsUri:
    """Marks a field of parameters that names locations: a text, some, or the keys of a mapping."""

    but: str | None = None
    """A word that is none."""


IS_URI = IsUri()


def is_limited() -> bool:
    """Whether `OFFLINE_ROOTS` is set."""
    return bool(os.environ.get(VARIABLE, "").strip())


def check_allowed(uri: str, normal: Callable[[str], str]) -> None:
    """Check a location against `OFFLINE_ROOTS`.

    Arguments:
        uri: as `normal` gives it.
        normal: from a path or URI to an absolute path, or a canonical URI without `.`, `..` and empty names.

    Raises:
        LocationError: it is outside of the roots.
        ConfigError: `OFFLINE_ROOTS` names no location.
    """
    if not is_limited():
        return
    text = os.environ[VARIABLE]
    roots = _roots(text, os.getcwd(), normal)
    if not any(_is_within(uri, root) for root in roots):
        raise LocationError(
            f"{uri} is not below a location that {VARIABLE} allows here: {', '.join(roots)}. Choose one below these.", uri=uri
        )


@functools.lru_cache(maxsize=8)
def _roots(text: str, _directory: str, normal: Callable[[str], str]) -> tuple[str, ...]:
    """Return the allowed roots; relative ones begin at the working directory."""
    named = [re.sub(r"(?<=/)\*$", "", part.strip()) for part in text.split(";") if part.strip()]
    try:
        if not named or any("*" in root for root in named):
            raise LocationError(f"{text!r} does not name folders.")
        return tuple(normal(root) for root in named)
    except LocationError as error:
        raise ConfigError(
            f"{VARIABLE} is wrong: {error} It is folders with semicolons between: runs;s3://bucket/team."
        ) from None


def _is_within(uri: str, root: str) -> bool:
    if uri.startswith("/") != root.startswith("/"):
        return False
    if uri.startswith("/"):  # a link may lead elsewhere
        root = os.path.realpath(root)
        return os.path.commonpath([root, os.path.realpath(uri)]) == root
    return f"{uri}/".startswith(f"{root}/")


def uris_in(value: Any, marks: Iterable[Any] = ()) -> Iterator[str]:
    """The locations that a parameter names, at any depth.

    Arguments:
        marks: of the parameter; `IsUri` counts.
    """
    mark = next((candidate for candidate in marks if isinstance(candidate, IsUri)), None)
    if isinstance(value, BaseModel):  # also one that has the name of a location
        for name, field in type(value).model_fields.items():
            yield from uris_in(getattr(value, name), field.metadata)
    elif mark is not None:
        texts = [value] if isinstance(value, str) else [*value] if isinstance(value, list | dict) else []
        yield from (text for text in texts if text != mark.but)
    elif isinstance(value, dict):
        yield from uris_in([*value.values()])
    elif isinstance(value, list | tuple):
        for part in value:
            yield from uris_in(part)
