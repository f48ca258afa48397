"""The server that a run brings with it: real processes, with a Prefect home of their own."""

from __future__ import annotations

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

from flows.evaluate_policy import evaluate_policy
from flows.prefect_database import TABLES
from offline_core.errors import CheckpointError

ONE_RUN = """
import sys
from flows.evaluate_policy import evaluate_policy
from prefect.settings import PREFECT_API_URL
for seed in (1, 2):
    evaluate_policy(policy=sys.argv[1], config={"episodes": 2, "seed": seed})
assert PREFECT_API_URL.value() is None
from flows.embedded_server import start
print("server", start()._process.pid)
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
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def rows(home: Path, query: str) -> list[tuple]:
    with sqlite3.connect(home / "prefect.db") as connection:
        return connection.execute(query).fetchall()


@pytest.fixture
def without_server() -> Iterator[None]:
    """As if none was set, also where other tests use one."""
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        yield


def test_runs_and_all_that_they_said_are_kept_and_the_server_is_gone(cartpole_policy: str, tmp_path: Path) -> None:
    home = tmp_path / "new" / "home"
    done = python(ONE_RUN, cartpole_policy, home=home)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Starting temporary server") == 1 and "View at" not in done.stderr
    assert rows(home, "SELECT state_name FROM flow_run") == [("Completed",)] * 2
    assert rows(home, "SELECT count(*) FROM task_run WHERE state_name = 'Completed'") == [(2,)]
    assert rows(home, "SELECT count(*) FROM log WHERE message LIKE 'Policy % over 2 episodes%'") == [(2,)]
    assert rows(home, "SELECT count(*) FROM artifact") == [(2,)]
    assert not (home / "memo_store.toml").exists(), "the next server would take Prefect's blocks for registered"
    assert not Path("/proc", done.stdout.split()[-1]).exists()


def test_it_ends_with_a_run_that_is_killed(tmp_path: Path) -> None:
    environment = os.environ | {"PREFECT_HOME": str(tmp_path)}
    command = [sys.executable, "-c", STARTED]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        server = psutil.Process(int(run.stdout.readline()))
        run.kill()
    server.wait(timeout=30)


@pytest.mark.parametrize(("policy", "episodes", "refusal"), [("", 0, ParameterTypeError), ("nowhere", 2, CheckpointError)])
def test_what_is_wrong_is_refused_and_no_server_is_started(
    policy: str, episodes: int, refusal: type[Exception], without_server: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a process starts"))
    with pytest.raises(refusal):
        evaluate_policy(policy=policy, config={"episodes": episodes})


def test_a_server_that_cannot_start_says_so_at_once(cartpole_policy: str, tmp_path: Path) -> None:
    (tmp_path / "prefect.db").write_text("no database, and longer than the header of one" * 10)
    done = python(ONE_RUN, cartpole_policy, home=tmp_path)
    assert done.returncode == 1
    assert "ServerStartError: The Prefect server that this run brings with it did not start: its process ended" in done.stderr


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
