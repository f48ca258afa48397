"""Old runs leave Prefect's database when its server is told so."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import httpx
import pytest

from tests.e2e.orchestra import Orchestra
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def test_a_run_that_ended_long_ago_is_deleted_and_a_new_one_stays(tmp_path: Path) -> None:
    settings = {
        "PREFECT_SERVER_SERVICES_DB_VACUUM_ENABLED": "events,flow_runs",
        "PREFECT_SERVER_SERVICES_DB_VACUUM_RETENTION_PERIOD": "7776000",
        "PREFECT_SERVER_SERVICES_DB_VACUUM_LOOP_SECONDS": "1",
    }
    home = tmp_path / "prefect"
    with Orchestra.with_server(home=home, root=tmp_path, **settings) as orchestra:
        flow = orchestra.ask("POST", "/flows/", {"name": "check"})["id"]
        completed = {"flow_id": flow, "state": {"type": "COMPLETED"}}
        new, old = (orchestra.ask("POST", "/flow_runs/", completed)["id"] for _ in range(2))
        with contextlib.closing(sqlite3.connect(home / "prefect.db", timeout=60)) as database, database:
            change = "UPDATE flow_run SET end_time = datetime('now', '-91 days') WHERE id = ?"
            assert database.execute(change, [old]).rowcount == 1

        def is_gone() -> bool:
            return httpx.get(f"{orchestra.api_url}/flow_runs/{old}").status_code == 404

        wait_until(is_gone, what="the old run to be deleted")
        assert orchestra.flow_run(new)["state_type"] == "COMPLETED"
