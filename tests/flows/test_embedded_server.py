"""The server that a run brings with it: real processes, with a Prefect home of their own."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from prefect.exceptions import ParameterTypeError
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.prefect_database import TABLES
from flows.stages import evaluate
from offline_core.errors import CheckpointError
from tests.waiting import PATIENCE_SECONDS

ONE_RUN = """
import httpx, json, psutil, sys
from flows.stages import evaluate
from prefect.settings import PREFECT_API_URL
for seed in (1, 2):
    evaluate(policy=sys.argv[1], config={"episodes": 2, "seed": seed})
assert PREFECT_API_URL.value() is None
from flows.embedded_server import start, used
from prefect.client.orchestration import get_client
from prefect.logging.handlers import APILogHandler
APILogHandler().flush()
server = start()
with used(server), get_client(sync_client=True) as client:
    runs, tasks = client.read_flow_runs(), client.read_task_runs()
    logs, artifacts = client.read_logs(), client.read_artifacts()
page = {"Origin": "http://page.example"}  # which is open in a browser of this machine
answers = [httpx.post(f"{server.address}/api/flow_runs/filter", json={}, headers=page),
           httpx.get(f"{server.address}/api/health", headers=page)]
[database] = {file.path for file in psutil.Process(server._process.pid).open_files() if file.path.endswith("prefect.db")}
print(json.dumps({
    "flow runs": [run.state_name for run in runs],
    "task runs": [run.state_name for run in tasks],
    "played": sum("over 2 episodes" in line.message for line in logs),
    "artifacts": len(artifacts),
    "database": database,
    "pid": server._process.pid,
    "answers to a page": [(each.status_code, "access-control-allow-origin" in each.headers) for each in answers],
}))
"""
STARTED = """
from flows.embedded_server import start
server = start()
server.wait()
print(server._process.pid, flush=True)
input()
"""
MADE_BY_PREFECT = """
import asyncio
from prefect.server.database import provide_database_interface
asyncio.run(provide_database_interface().create_db())
"""


def python(code: str, *arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    environment = os.environ | {"PREFECT_HOME": str(home)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def rows(home: Path, query: str) -> list[tuple]:
    with sqlite3.connect(home / "prefect.db") as connection:
        return connection.execute(query).fetchall()


@pytest.fixture
def without_server() -> Iterator[None]:
    """As if none was set, also where other tests use one."""
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        yield


@pytest.mark.slow
def test_runs_have_a_server_with_a_database_of_its_own_and_both_are_gone_afterwards(
    cartpole_policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "new" / "home"
    monkeypatch.setenv("PREFECT_SERVER_DATABASE_CONNECTION_URL", f"sqlite+aiosqlite:///{home}/prefect.db")  # that server's
    with shared_database(home) as shared:  # of a server that is up, and writes
        done = python(ONE_RUN, cartpole_policy, home=home)
        assert done.returncode == 0, done.stderr
        assert shared.execute("SELECT count(*) FROM runs").fetchall() == [(0,)]
    assert done.stderr.count("Starting temporary server") == 1 and "View at" not in done.stderr
    kept = json.loads(done.stdout.splitlines()[-1])
    assert kept["flow runs"] == ["Completed"] * 2 == kept["task runs"]
    assert (kept["played"], kept["artifacts"]) == (2, 2)
    assert kept["answers to a page"] == [[401, False], [200, False]]
    assert not (home / "memo_store.toml").exists(), "the next server would take Prefect's blocks for registered"
    assert not Path("/proc", str(kept["pid"])).exists()
    assert not Path(kept["database"]).parent.exists() and str(home) not in kept["database"]


@contextlib.contextmanager
def shared_database(home: Path) -> Iterator[sqlite3.Connection]:
    """What a server's database is like while it is being written to: no other process gets the lock."""
    home.mkdir(parents=True)
    with contextlib.closing(sqlite3.connect(home / "prefect.db", isolation_level=None)) as connection:
        connection.executescript("CREATE TABLE runs (name TEXT); PRAGMA journal_mode = WAL; BEGIN IMMEDIATE;")
        yield connection


@pytest.mark.slow
def test_it_ends_with_a_run_that_is_killed(tmp_path: Path) -> None:
    environment = os.environ | {"PREFECT_HOME": str(tmp_path)}
    command = [sys.executable, "-c", STARTED]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        server = psutil.Process(int(run.stdout.readline()))
        run.kill()
    server.wait(timeout=PATIENCE_SECONDS)


@pytest.mark.parametrize(("policy", "episodes", "refusal"), [("", 0, ParameterTypeError), ("nowhere", 2, CheckpointError)])
def test_what_is_wrong_is_refused_and_no_server_is_started(
    policy: str, episodes: int, refusal: type[Exception], without_server: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a process starts"))
    with pytest.raises(refusal):
        evaluate(policy=policy, config={"episodes": episodes})


@pytest.mark.slow
def test_a_server_that_cannot_start_says_so_at_once(cartpole_policy: str, tmp_path: Path) -> None:
    broken = "from flows import embedded_server; embedded_server.APPLICATION = ['nowhere:app']\n" + ONE_RUN
    done = python(broken, cartpole_policy, home=tmp_path)
    assert done.returncode == 1
    assert "ServerStartError: The Prefect server that this run brings with it did not start: its process ended" in done.stderr


@pytest.mark.slow
def test_an_empty_database_is_the_one_that_prefect_makes(tmp_path: Path) -> None:
    """Otherwise replace the file by what `sqlite3.Connection.iterdump` gives of a database that Prefect has made."""
    tables, release = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL", "SELECT * FROM alembic_version"

    def lines(found: list[tuple]) -> dict[str, list[str]]:  # alembic writes the constraints of a table in any order
        return {name: sorted(line.strip(" ,\t") for line in sql.replace('"', "").splitlines()) for name, sql in found}

    made = python(MADE_BY_PREFECT, home=tmp_path)
    assert made.returncode == 0, made.stderr
    with sqlite3.connect(":memory:") as ours:
        ours.executescript(TABLES.read_text())
        assert lines(ours.execute(tables).fetchall()) == lines(rows(tmp_path, tables))
        assert ours.execute(release).fetchall() == rows(tmp_path, release)
    assert "INSERT" not in TABLES.read_text().replace('INSERT INTO "alembic_version"', ""), "it holds nothing of a run"
