"""Prefect's server and its database: what the command line says where they do not answer, or are busy."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from flows.stopping import end_at_once
from offline_core.errors import OfflineError

PATIENCE_SECONDS = 60.0
"""For the write lock of a SQLite database. Prefect's server waits as long; one that creates its tables may need it."""
QUIET_SECONDS = 3.0
"""Of these, before it is said that there is a wait."""

GONE_SECONDS = 8.0
"""A server that refuses connections for so long is gone. Prefect's client would ask it for minutes."""
ASK_SECONDS = 1.0

AGAIN = "what was done is found when you run the same again."


class DatabaseBusyError(OfflineError):
    """Another process holds the write lock of Prefect's database."""

    may_pass = True


def wait_for_database(seconds: float = PATIENCE_SECONDS) -> None:
    """Returns when the SQLite database of the server that a flow would bring with it can be written.

    At once where another server is used, another database, or none is there yet.

    Raises:
        DatabaseBusyError: another process still holds its write lock after so many seconds.
    """
    path = _own_database()
    if path is None or not path.is_file():
        return
    begin = time.monotonic()
    if _can_be_written(path, min(QUIET_SECONDS, seconds)):
        return
    sys.stderr.write(f"Waiting for the Prefect database {path}: another process is writing to it.\n")
    if not _can_be_written(path, max(0.0, seconds - (time.monotonic() - begin))):
        raise DatabaseBusyError(
            f"The Prefect database {path} is locked: another process has been writing to it for {seconds:.0f} s. "
            f"End that process ('fuser {path}' names it) and run this again, or set PREFECT_HOME to another folder for this "
            f"run. For several runs at once start one server ('prefect server start') and set PREFECT_API_URL; for many, give "
            "that server a Postgres database (deployments/README.md says from when on)."
        )


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
    if str(error).startswith("Timed out while attempting to connect to ephemeral Prefect API server"):
        return (
            "The Prefect server that this run brings with it did not start in time: the machine is overloaded, or another "
            "process is writing to its database (PREFECT_HOME). Run it again later, or start one server for all runs "
            "('prefect server start') and set PREFECT_API_URL."
        )
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


def _own_database() -> Path | None:
    """The SQLite file of a server that a flow would bring with it; None if it would bring none, or has no such file."""
    from prefect.settings import PREFECT_API_DATABASE_CONNECTION_URL, get_current_settings
    from sqlalchemy.engine import make_url

    if get_current_settings().api.url is not None:
        return None
    url = make_url(str(PREFECT_API_DATABASE_CONNECTION_URL.value()))
    is_file = url.get_backend_name() == "sqlite" and url.database and not url.database.startswith((":", "file:"))
    return Path(str(url.database)) if is_file else None


def _can_be_written(path: Path, seconds: float) -> bool:
    """Whether its write lock could be had within so many seconds."""
    connection = sqlite3.connect(path, timeout=seconds, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except sqlite3.OperationalError as error:
        return error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)  # the rest is Prefect's to say
    finally:
        connection.close()
    return True


def _no_server() -> str:
    """Where there is no server, and what to do: by Prefect's own settings, which it also reads from profiles and files."""
    from prefect.settings import get_current_settings

    if (url := get_current_settings().api.url) is None:
        return f"The Prefect server that this run had brought with it does not answer; {AGAIN}"
    name = "PREFECT_API_URL"
    variable = "unset the variable" if name in os.environ else f"unset {name} where 'prefect config view' says that it is set"
    return (
        f"No Prefect server answers at {url} ({name}). Start it ('prefect server start'), or {variable} to do without; {AGAIN}"
    )
