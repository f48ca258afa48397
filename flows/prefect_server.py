"""Prefect's server: what the command line says where it does not answer, or is busy."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from flows.stopping import end_at_once
from offline_core.secrets import masked_text

GONE_SECONDS = 8.0
"""A server that refuses connections for so long is gone. Prefect's client would ask it for minutes."""
ASK_SECONDS = 1.0

AGAIN = "what was done is found when you run the same again."


@contextlib.contextmanager
def watched(flow: Any) -> Iterator[Any]:
    """`flow`, whose call ends the process with code 1 where its server goes away before the flow's code runs, or after.

    While it runs nothing is ended: hours of work do not need the server.
    """
    from prefect.settings import get_current_settings

    if (url := get_current_settings().api.url) is None:
        yield flow
        return
    working, over = threading.Event(), threading.Event()
    copy = flow.with_options()

    @functools.wraps(flow.fn)
    def fn(*args: Any, **kwargs: Any) -> Any:
        working.set()
        try:
            return flow.fn(*args, **kwargs)
        finally:
            working.clear()

    copy.fn = fn
    threading.Thread(target=_watch, args=(url, working, over), name="server watch", daemon=True).start()
    try:
        yield copy
    finally:
        over.set()


def trouble(error: BaseException) -> str | None:
    """What `error` says about Prefect's server in words, and what to do; None if it is about something else."""
    from httpx import HTTPStatusError, TransportError

    if isinstance(error, TransportError) or str(error).startswith("Failed to reach API"):
        return _no_server()
    if isinstance(error, HTTPStatusError) and error.response.status_code == 503:
        return (
            "The Prefect server's database was busy for too long: it answered 503, and again each time it was asked. Run "
            f"fewer flows at once, or give the server a Postgres database (deployments/README.md); {AGAIN}"
        )
    return None


def _watch(url: str, working: threading.Event, over: threading.Event) -> None:
    gone_since: float | None = None
    while not over.wait(ASK_SECONDS):
        if working.is_set() or not _refuses(url):
            gone_since = None
        elif gone_since is None:
            gone_since = time.monotonic()
        elif time.monotonic() - gone_since > GONE_SECONDS:
            end_at_once(1, _no_server())


def _refuses(url: str) -> bool:
    """Only what says so counts: a server behind a proxy cannot be reached like this, nor one that is slow."""
    address = urlsplit(url)
    try:
        with socket.create_connection(
            (address.hostname, address.port or {"https": 443}.get(address.scheme, 80)), timeout=ASK_SECONDS
        ):
            return False
    except ConnectionRefusedError:
        return True
    except OSError:
        return False


def _no_server() -> str:
    """Where there is no server, and what to do: by Prefect's own settings, which it also reads from profiles and files."""
    from prefect.settings import get_current_settings

    if (url := get_current_settings().api.url) is None:
        return f"The Prefect server that this run had brought with it does not answer; {AGAIN}"
    name = "PREFECT_API_URL"
    variable = "unset the variable" if name in os.environ else f"unset {name} where 'prefect config view' says that it is set"
    return (
        f"No Prefect server answers at {masked_text(url)} ({name}). Start it ('prefect server start'), or {variable} to do "
        f"without; {AGAIN}"
    )
