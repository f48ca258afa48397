"""Prefect's server on Postgres: what more than one person needs."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e.orchestra import FINAL, POOL, Orchestra, checkout
from tests.e2e.postgres import INSTALL, binary, postgres
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(binary("initdb") is None, reason=INSTALL),
]

RUNS = 50


def test_fifty_runs_submitted_at_once_all_complete(tmp_path: Path, cartpole_policy: str) -> None:
    with (
        postgres() as database,
        Orchestra.started(
            home=tmp_path / "prefect",
            root=checkout(tmp_path / "checkout"),
            deployments=["evaluate-smoke"],
            PREFECT_API_DATABASE_CONNECTION_URL=database,
        ) as orchestra,
        ThreadPoolExecutor(RUNS) as people,
    ):
        orchestra.prefect("work-pool", "set-concurrency-limit", POOL, "3")

        def submit(seed: int) -> str:
            parameters = {"policy": cartpole_policy, "config": {"episodes": 2, "seed": seed}}
            return orchestra.submit("evaluate/evaluate-smoke", parameters)

        runs = [*people.map(submit, range(RUNS))]

        def final(run: str) -> str | None:
            state: str = orchestra.flow_run(run)["state_type"]
            return state if state in FINAL else None

        states = Counter(wait_until(lambda: final(run), what=f"run {number}") for number, run in enumerate(runs))  # noqa: B023
        assert states == {"COMPLETED": RUNS}
        log = (orchestra.home / "server.log").read_text()
    assert "locked" not in log and "deadlock" not in log
