"""A Postgres server for a test or a benchmark, from the binaries that a distribution installs."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.orchestra import free_port

DEBIANS = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda each: int(each.parent.name), reverse=True)
INSTALL = "needs Postgres: 'make postgres'"


def binary(name: str) -> str | None:
    """The path of a program of Postgres; None where there is none."""
    return shutil.which(name, path=os.pathsep.join([*map(str, DEBIANS), os.environ.get("PATH", "")]))


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """Starts a server with an empty database `prefect` on a free port of loopback. Yields Prefect's address of it.

    Postgres refuses to run as root, so that it runs as the user `postgres` there.
    """
    user = "postgres" if os.geteuid() == 0 else None
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="postgres-") as folder:
        if user is not None:
            shutil.chown(folder, user)
        data = Path(folder) / "data"

        def program(name: str, *arguments: str) -> list[str]:
            path = binary(name)
            assert path is not None, INSTALL
            return [path, *arguments]

        initialize = program("initdb", "-D", str(data), "-A", "trust", "-U", "prefect", "--no-sync", "-E", "UTF8")
        subprocess.run(initialize, user=user, cwd=folder, check=True, capture_output=True)
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
        control = program("pg_ctl", "-D", str(data), "-w", "-l", f"{folder}/log", "-o", options)
        subprocess.run([*control, "start"], user=user, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        try:
            made = program("createdb", "-h", "127.0.0.1", "-p", str(port), "-U", "prefect", "prefect")
            subprocess.run(made, user=user, cwd=folder, check=True)
            yield f"postgresql+asyncpg://prefect@127.0.0.1:{port}/prefect"
        finally:
            subprocess.run([*control, "stop", "-m", "immediate"], user=user, cwd=folder, check=True, stdout=subprocess.DEVNULL)
