"""Errors of user code, with what failed and where."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from pathlib import Path

from offline_core.errors import DataError, OfflineError

_PACKAGE = str(Path(__file__).parents[1])


@contextlib.contextmanager
def user_errors(
    what: str, where: str, kind: type[OfflineError] = DataError, *, uri: str | None = None, episode: str | None = None
) -> Iterator[None]:
    """Turn whatever user code raises in the block into a `kind`; an `OfflineError` passes unchanged.

    Arguments:
        what: the code, such as "filter examples.filter:upright".
        where: what it was called on, such as "on episode 7"; `uri` and `episode` are the same as data.
    """
    try:
        yield
    except (OfflineError, MemoryError):
        raise
    except Exception as error:  # user code may raise anything
        raise kind(
            f"The {what} failed {where}: {error!r} ({_line(error)}). Fix your function, or raise an OfflineError.",
            uri=uri,
            episode=episode,
        ) from error


def _line(error: Exception) -> str:
    """Return the last line of user code in the traceback, which Ray does not send back."""
    passed = traceback.extract_tb(error.__traceback__)
    users = [frame for frame in passed if not frame.filename.startswith(_PACKAGE) and "site-packages" not in frame.filename]
    last = (users or passed)[-1]
    return f"{last.filename}, line {last.lineno}"
