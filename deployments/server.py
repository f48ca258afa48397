"""What people read when the server cannot do what a program asks of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from flows.prefect_server import trouble
from offline_core.errors import OfflineError


@contextmanager
def readable_errors() -> Iterator[None]:
    """Ends the program with one message, and exit code 1, where the server does not answer or cannot do what is asked."""
    try:
        yield
    except OfflineError as error:
        raise SystemExit(str(error)) from None
    except Exception as error:
        if (message := trouble(error, is_needed=True)) is None:
            raise
        raise SystemExit(message) from None
