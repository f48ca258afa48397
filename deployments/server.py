"""What people read when the server cannot do what a program asks of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from prefect.settings import get_current_settings

from flows.prefect_server import trouble
from offline_core.errors import OfflineError, first_line
from offline_core.secrets import masked_text


@contextmanager
def readable_errors() -> Iterator[None]:
    """Ends the program with one message, and exit code 1, where the server does not answer or cannot do what is asked."""
    try:
        yield
    except httpx.TransportError as error:
        raise SystemExit(
            masked_text(
                f"The Prefect server at {get_current_settings().api.url} does not answer ({first_line(error)}). Start it with "
                "'prefect server start', or set PREFECT_API_URL to where it is."
            )
        ) from None
    except httpx.HTTPStatusError as error:
        if (message := trouble(error)) is None:
            raise
        raise SystemExit(message) from None
    except OfflineError as error:
        raise SystemExit(str(error)) from None
