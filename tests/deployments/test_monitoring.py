"""Metrics, and the rules and the dashboard that read them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from prefect.states import Completed, Failed
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from deployments.definitions import PREFECT_FILE
from deployments.metrics import RootMetrics, ServerMetrics
from flows.stages import evaluate
from tests.data.datasets.factories import episode
from tests.learning.datasets import dataset_of

MONITORING = PREFECT_FILE.parent / "monitoring"
PROMTOOL = shutil.which("promtool")


def values(registry: CollectorRegistry) -> dict[str, dict[str, float]]:
    """By name of the metric and labels, as a scrape has them."""
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[",".join(sample.labels.values())] = sample.value
    return found


def test_rules_and_dashboard_read_only_what_is_exported() -> None:
    registry = CollectorRegistry()
    ServerMetrics(registry)
    RootMetrics(registry, [])
    exported = {
        sample for family in registry.collect() for sample in (family.name, f"{family.name}_total", f"{family.name}_bucket")
    }
    rules = [
        rule["expr"] for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"] for rule in group["rules"]
    ]
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    shown = [target["expr"] for panel in panels for target in panel["targets"]]
    read = {name for expression in rules + shown for name in re.findall(r"offline_\w+", expression)}
    assert len(read) > 15 and read <= exported


@pytest.mark.skipif(PROMTOOL is None, reason="needs promtool, which is in Debian's package prometheus")
def test_rules_fire_when_they_should() -> None:
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, "test", "rules", str(MONITORING / "alerts_test.yaml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_root_is_measured_and_one_that_is_gone_is_told(tmp_path: Path) -> None:
    dataset_of(tmp_path / "runs" / "data", [episode(0), episode(1)])
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "result.json").write_text("{")
    registry, root = CollectorRegistry(), str(tmp_path / "runs")
    metrics = RootMetrics(registry, [root])
    for _ in range(2):
        metrics.refresh()
    found = values(registry)
    assert found["offline_dataset_steps"] == {f"data,{root}": 14}
    assert found["offline_dataset_versions"] == {f"data,{root}": 1}
    assert found["offline_root_up"] == {root: 1} and found["offline_root_problems"] == {root: 1}
    assert found["offline_root_free_bytes"][root] > 0
    (tmp_path / "runs").rename(tmp_path / "elsewhere")
    metrics.refresh()
    assert values(registry)["offline_root_up"] == {root: 0}


def test_runs_are_counted_once_by_flow_and_state(prefect_server: None, cartpole_policy: str) -> None:
    registry = CollectorRegistry()
    metrics = ServerMetrics(registry)
    metrics.refresh()

    def completed() -> float:
        return values(registry)["offline_flow_runs_total"].get("evaluate,Completed", 0)

    before = completed() if "offline_flow_runs_total" in values(registry) else 0
    evaluate(policy=cartpole_policy, config={"episodes": 2})
    for _ in range(2):
        metrics.refresh()
    assert completed() == before + 1
    found = values(registry)
    assert found["offline_flow_runs_total"]["evaluate,Crashed"] == 0  # so that an alert sees the first one as an increase
    assert found["offline_prefect_up"] == {"": 1} and found["offline_flow_runs_now"]["Running"] == 0
    assert found["offline_queue_wait_seconds_count"][""] >= 1


def test_runs_of_a_deleted_deployment_are_counted_with_those_after_them(prefect_server: None) -> None:
    with get_client(sync_client=True) as client:
        flow = client.create_flow_from_name("deleted-later")
        deployment = client.create_deployment(flow, "old")
        for state in (Completed(), Failed()):
            run = client.create_flow_run_from_deployment(deployment)
            client.set_flow_run_state(run.id, state, force=True)
        client.delete_deployment(deployment)
    registry = CollectorRegistry()
    ServerMetrics(registry).refresh()
    found = values(registry)
    assert found["offline_prefect_up"] == {"": 1}
    ended = found["offline_flow_runs_total"]
    assert (ended["deleted-later,Completed"], ended["deleted-later,Failed"]) == (1, 1)


@pytest.mark.slow
def test_a_server_that_does_not_answer_is_a_metric() -> None:
    registry = CollectorRegistry()
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api", PREFECT_CLIENT_MAX_RETRIES: 0}):
        ServerMetrics(registry).refresh()
    assert values(registry)["offline_prefect_up"] == {"": 0}
