"""The SQLite database of the Prefect server that a run brings with it."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

from offline_core.errors import OfflineError

PATIENCE_SECONDS = 60.0
"""For the write lock. Prefect's server waits as long; one that creates its tables may need it."""
QUIET_SECONDS = 3.0
"""Of these, before it is said that there is a wait."""
TABLES = Path(__file__).with_name("prefect_database.sql")
"""An empty database of Prefect 3.8.8. Prefect itself brings it to the state of a newer release, as it does with any."""


class DatabaseBusyError(OfflineError):
    """Another process holds the write lock of Prefect's database."""

    may_pass = True


def database_file() -> Path | None:
    """The file of a server that a flow would bring with it; None if it would bring none, or has its data elsewhere."""
    from prefect.settings import PREFECT_API_DATABASE_CONNECTION_URL, get_current_settings

    if get_current_settings().api.url is not None:
        return None
    kind, _, place = str(PREFECT_API_DATABASE_CONNECTION_URL.value()).partition(":///")
    path = place.partition("?")[0]
    return Path(path) if kind.startswith("sqlite") and path and not path.startswith((":", "file:")) else None


def wait_for_database(seconds: float = PATIENCE_SECONDS) -> None:
    """Returns when the file can be written; at once where there is none.

    Raises:
        DatabaseBusyError: another process still holds its write lock after so many seconds.
    """
    path = database_file()
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


def make_database() -> None:
    """Makes the file if there is none, with all tables: Prefect's server takes seconds for that, one release after the other.

    Where it cannot be made, Prefect's server is left to try, and to say why it cannot.
    """
    path = database_file()
    if path is None or path.exists() or not _is_known(TABLES.read_text()):
        return
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            made = os.path.join(folder, path.name)
            with contextlib.closing(sqlite3.connect(made)) as connection:
                connection.executescript(TABLES.read_text())
            os.link(made, path)  # fails if another run has made it meanwhile


def _is_known(tables: str) -> bool:
    """Whether the installed Prefect knows the release of these tables."""
    import prefect

    [revision] = re.findall(r'INTO "alembic_version" VALUES\(\'(\w+)\'\)', tables)
    migrations = Path(prefect.__module_path__) / "server/database/_migrations/versions/sqlite"
    return any(migrations.glob(f"*{revision}*.py"))


def _can_be_written(path: Path, seconds: float) -> bool:
    """Whether its write lock could be had within so many seconds."""
    connection = sqlite3.connect(path, timeout=seconds, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except sqlite3.DatabaseError as error:
        return error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)  # the rest is Prefect's to say
    finally:
        connection.close()
    return True
