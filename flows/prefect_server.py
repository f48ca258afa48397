"""Prefect's server and its database: what the command line says where they do not answer, or are busy."""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from pathlib import Path

from offline_core.errors import OfflineError

PATIENCE_SECONDS = 60.0
"""For the write lock of a SQLite database. Prefect's server waits as long; one that creates its tables may need it."""
QUIET_SECONDS = 3.0
"""Of these, before it is said that there is a wait."""

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
