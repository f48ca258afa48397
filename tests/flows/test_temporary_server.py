"""Flows where no Prefect server is set: Prefect's own temporary one, in real processes with a Prefect home of their own."""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prefect.exceptions import ParameterTypeError
from prefect.settings import PREFECT_API_URL, PREFECT_HOME, PREFECT_SERVER_DATABASE_CONNECTION_URL, temporary_settings

from flows import prefect_server
from flows.expert_to_policy import expert_to_policy
from flows.prefect_server import trouble
from offline_core.errors import ConfigError
from tests.waiting import is_over, wait_until

TWO_RUNS = """
import httpx, json, sys
from flows.stages import evaluate
from prefect.settings import PREFECT_API_URL
for seed in (1, 2):
    evaluate(policy=sys.argv[1], config={"episodes": 2, "seed": seed})
assert PREFECT_API_URL.value() is None
from prefect.client.orchestration import get_client
from prefect.server.api.server import SubprocessASGIServer
from flows.prefect_server import temporary_server
[server] = SubprocessASGIServer._instances.values()
with temporary_server(), get_client(sync_client=True) as client:
    runs, tasks = client.read_flow_runs(), client.read_task_runs()
page = {"Origin": "http://page.example"}  # which is open in a browser of this machine
answers = [httpx.post(f"{server.api_url}/flow_runs/filter", json={}, headers=page),
           httpx.get(f"{server.api_url}/health", headers=page)]
print(json.dumps({
    "flow runs": [run.state_name for run in runs],
    "task runs": [run.state_name for run in tasks],
    "answers to a page": [(each.status_code, "access-control-allow-origin" in each.headers) for each in answers],
    "pid": server.server_process.pid,
}))
"""


@pytest.mark.slow
def test_runs_of_a_process_share_a_server_that_no_page_can_use_and_that_ends_with_them(
    cartpole_policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "new" / "home"
    monkeypatch.setenv("PREFECT_HOME", str(home))
    monkeypatch.setenv("PREFECT_SERVER_DATABASE_CONNECTION_URL", f"sqlite+aiosqlite:///{home}/prefect.db")  # that server's
    with shared_database(home) as shared:  # of a server that is up, and writes
        command = [sys.executable, "-c", TWO_RUNS, cartpole_policy]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert shared.execute("SELECT count(*) FROM runs").fetchall() == [(0,)]
    assert done.stderr.count("Starting temporary server") == 1 and "View at" not in done.stderr
    kept = json.loads(done.stdout.splitlines()[-1])
    assert kept["flow runs"] == ["Completed"] * 2 == kept["task runs"]
    assert kept["answers to a page"] == [[401, False], [200, False]]
    assert not (home / "memo_store.toml").exists(), "the next server would take Prefect's blocks for registered"
    assert not Path("/proc", str(kept["pid"])).exists()


KILLED = """
import os, signal, subprocess, sys
from flows.prefect_server import end_with_this_process
process = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
end_with_this_process(process.pid)
print(process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_it_ends_with_a_process_that_was_killed() -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    wait_until(lambda: is_over(int(killed.stdout)), what="the other process to end")


@contextlib.contextmanager
def shared_database(home: Path) -> Iterator[sqlite3.Connection]:
    """What a server's database is like while it is being written to: no other process gets the lock."""
    home.mkdir(parents=True)
    with contextlib.closing(sqlite3.connect(home / "prefect.db", isolation_level=None)) as connection:
        connection.executescript("CREATE TABLE runs (name TEXT); PRAGMA journal_mode = WAL; BEGIN IMMEDIATE;")
        yield connection


def test_where_nothing_can_be_written_its_database_is_in_memory() -> None:
    with temporary_settings({PREFECT_HOME: Path("/proc/nowhere")}):
        url = prefect_server._settings_of_temporary_server.__wrapped__()[PREFECT_SERVER_DATABASE_CONNECTION_URL]
    assert url == "sqlite+aiosqlite:///:memory:"


def test_a_server_that_takes_too_long_is_named_in_words() -> None:
    said = trouble(RuntimeError("Timed out while attempting to connect to ephemeral Prefect API server."))
    assert said is not None and "did not start: the machine is overloaded" in said
    assert trouble(RuntimeError("another")) is None


@pytest.mark.parametrize(
    ("pruning", "refusal"), [({"keep_top_fraction": 2}, ParameterTypeError), ({"where": "return >"}, ConfigError)]
)
def test_what_is_wrong_is_refused_and_no_server_is_started(
    pruning: dict[str, object], refusal: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a process starts"))
    with temporary_settings(restore_defaults={PREFECT_API_URL}), pytest.raises(refusal):  # also where other tests use one
        expert_to_policy(pruning=pruning)  # type: ignore[arg-type]
