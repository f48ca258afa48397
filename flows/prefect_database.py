"""The empty SQLite database of the Prefect server that a run brings with it."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from pathlib import Path

TABLES = Path(__file__).with_name("prefect_database.sql")
"""An empty database of Prefect 3.8.8. Prefect itself brings it to the state of a newer release, as it does with any."""


def make_database(path: Path) -> None:
    """Makes the file with all tables: Prefect's server takes seconds for that, one release after the other.

    Left to that server where the installed Prefect is older than these tables.
    """
    tables = TABLES.read_text()
    if _is_known(tables):
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.executescript(tables)


def _is_known(tables: str) -> bool:
    """Whether the installed Prefect knows the release of these tables."""
    import prefect

    [revision] = re.findall(r'INTO "alembic_version" VALUES\(\'(\w+)\'\)', tables)
    migrations = Path(prefect.__module_path__) / "server/database/_migrations/versions/sqlite"
    return any(migrations.glob(f"*{revision}*.py"))
