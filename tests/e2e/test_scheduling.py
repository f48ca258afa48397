"""Runs that begin by themselves, and runs that meet."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from offline_core.data.datasets.dataset import open_dataset, versions
from tests.e2e.orchestra import FINAL, Orchestra
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def expert(orchestra: Orchestra) -> str:
    """A checkpoint to play."""
    orchestra.wait_for(orchestra.submit("train-expert/train-expert-smoke", {"output": "runs/scheduling/expert"}), "COMPLETED")
    return "runs/scheduling/expert/best"


def test_a_schedule_fires_again_and_again(orchestra: Orchestra) -> None:
    """With SQLAlchemy 2.1, Prefect 3.8 schedules nothing and says so nowhere but in the server's log."""
    deployment = orchestra.ask("GET", "/deployments/name/check/check-nightly")["id"]
    orchestra.prefect("deployment", "schedule", "create", "check/check-nightly", "--interval", "15", "-y")
    schedules = orchestra.ask("GET", f"/deployments/{deployment}/schedules")
    (made,) = [each["id"] for each in schedules if "interval" in each["schedule"]]

    def ended() -> list[dict[str, Any]] | None:
        query = {"deployments": {"id": {"any_": [deployment]}}, "flow_runs": {"state": {"type": {"any_": FINAL}}}}
        found = [each for each in orchestra.ask("POST", "/flow_runs/filter", query) if each["auto_scheduled"]]
        return found if len(found) > 1 else None

    try:
        first, second = sorted(
            datetime.fromisoformat(each["expected_start_time"])
            for each in wait_until(ended, what="two scheduled runs to end")[:2]
        )
    finally:
        orchestra.prefect("deployment", "schedule", "delete", "check/check-nightly", made, "-y")
    assert (second - first) % timedelta(seconds=15) < timedelta(seconds=1)


def test_the_shipped_schedule_can_be_switched_on(orchestra: Orchestra) -> None:
    deployment = orchestra.ask("GET", "/deployments/name/train-expert/train-expert-nightly")["id"]
    (shipped,) = orchestra.ask("GET", f"/deployments/{deployment}/schedules")
    orchestra.prefect("deployment", "schedule", "resume", "train-expert/train-expert-nightly", shipped["id"])

    def scheduled() -> Any:
        query = {"deployments": {"id": {"any_": [deployment]}}, "flow_runs": {"state": {"type": {"any_": ["SCHEDULED"]}}}}
        return orchestra.ask("POST", "/flow_runs/filter", query)

    try:
        runs = wait_until(scheduled, what="runs to be scheduled")
    finally:
        orchestra.prefect("deployment", "schedule", "pause", "train-expert/train-expert-nightly", shipped["id"])
    assert {datetime.fromisoformat(each["expected_start_time"]).strftime("%H:%M") for each in runs} == {"02:00"}


def test_two_recordings_to_the_same_place_at_once_make_one_version(orchestra: Orchestra, expert: str) -> None:
    parameters = {"policy": expert, "output": "runs/scheduling/together", "config": {"episodes": 500}}
    runs = [orchestra.submit("record/record-smoke", parameters) for _ in range(2)]
    for run in runs:
        orchestra.wait_for(run, "COMPLETED")
    output = str(orchestra.root / "runs" / "scheduling" / "together")
    assert versions(output) == [1] and open_dataset(output).ref.episodes == 500


def test_a_second_training_waits_for_the_first(orchestra: Orchestra) -> None:
    parameters = {"output": "runs/scheduling/queue", "config": {"total_steps": 200_000, "evaluation": {"target_return": 490.0}}}
    first, second = (orchestra.submit("train-expert/train-expert-smoke", parameters) for _ in range(2))
    ended = {run: orchestra.wait_for(run, "COMPLETED") for run in (first, second)}
    one, other = sorted(ended.values(), key=lambda each: str(each["start_time"]))
    assert datetime.fromisoformat(one["end_time"]) <= datetime.fromisoformat(other["start_time"])
