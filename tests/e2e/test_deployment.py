"""The four commands of deployments/README.md, and a run of the whole chain by them."""

from __future__ import annotations

import pytest

from offline_core.data.datasets.dataset import open_dataset
from offline_core.runtime.provenance import provenance
from tests.deployments.flows import DEPLOYMENTS
from tests.e2e.orchestra import Orchestra

pytestmark = pytest.mark.slow


def test_everything_is_deployed_and_nothing_scheduled(orchestra: Orchestra) -> None:
    flows = {flow["id"]: flow["name"] for flow in orchestra.ask("POST", "/flows/filter", {})}
    deployments = orchestra.ask("POST", "/deployments/filter", {})
    names = {f"{flows[each['flow_id']]}/{each['name']}" for each in deployments}
    assert names == DEPLOYMENTS
    assert not [schedule for each in deployments for schedule in each["schedules"] if schedule["active"]]
    git = provenance()["git"].removesuffix("+dirty")
    assert {each["version"].removesuffix("+dirty") for each in deployments} == {git}
    assert all(each["enforce_parameter_schema"] for each in deployments)


def test_the_chain_runs_from_the_command_line(orchestra: Orchestra) -> None:
    watched = orchestra.prefect("deployment", "run", "expert-to-policy/expert-to-policy-smoke", "--watch")
    assert "Completed" in watched.stdout
    query = {"flows": {"name": {"any_": ["expert-to-policy"]}}, "sort": "START_TIME_DESC", "limit": 1}
    (run,) = orchestra.ask("POST", "/flow_runs/filter", query)
    assert run["state_type"] == "COMPLETED"
    assert set(orchestra.task_runs(run["id"]).values()) == {"COMPLETED"}
    cards = orchestra.artifacts(run["id"])
    assert {key for key in cards if key and key.endswith("-card")} >= {
        "expert-to-policy-card",
        "train-expert-card",
        "train-card",
    }
    assert "Train policy" in cards["expert-to-policy-card"]
    root = orchestra.root / "runs" / "smoke" / "chain"
    recorded, pruned = (open_dataset(str(root / name)).ref.episodes for name in ("recording", "pruned"))
    assert (recorded, pruned) == (20, 10)


def test_the_server_keeps_to_itself(orchestra: Orchestra) -> None:
    """By [tool.prefect] alone: nothing in the environment of these processes says so."""
    assert not [name for name in orchestra.environment if "ANALYTICS" in name]
    settings = orchestra.ask("GET", "/admin/settings")["server"]
    assert settings["analytics_enabled"] is False
    assert settings["ui"]["show_promotional_content"] is False
    listening = {
        c.laddr.ip for p in orchestra.processes("prefect server start") for c in p.net_connections() if c.status == "LISTEN"
    }
    assert listening == {"127.0.0.1"}
