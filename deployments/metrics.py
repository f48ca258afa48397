"""Metrics for Prometheus, of the runs on a Prefect server and of what is below roots: `python -m deployments.metrics`.

A scrape reads nothing: what it returns is refreshed in the background. Prefect's server has metrics of its own requests besides
(PREFECT_SERVER_METRICS_ENABLED, at /api/metrics).
"""

from __future__ import annotations

import argparse
import logging
import shutil
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from offline_core.data.quality.check import last_report
from offline_core.errors import OfflineError, first_line
from offline_core.judging.decisions.result import DecisionResult
from offline_core.keeping.contents import Contents, read_contents
from offline_core.learning.result import TrainingResult

log = logging.getLogger(__name__)

PORT = 9464
LOOK_BACK = timedelta(days=30)
PAGE, MOST_PAGES = 200, 10
"""Runs of one request, which is Prefect's limit, and requests of one refresh."""
MOST_LABELLED = 200
"""Datasets, and trainings, that have a series of their own: the newest."""
WAITS = (1, 5, 10, 30, 60, 300, 900, 3_600, 14_400)
FAILED = ("Failed", "Crashed", "TimedOut")
"""States whose counters begin at zero: an alert sees the first failure of a flow as an increase."""
LIVE = {"Running": "RUNNING", "Pending": "PENDING", "Late": "SCHEDULED", "AwaitingConcurrencySlot": "SCHEDULED"}
"""States that are counted now, by name, with their types."""


class ServerMetrics:
    """Runs on the server that PREFECT_API_URL names."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._up = Gauge("offline_prefect_up", "Whether Prefect's server answered the last time.", registry=registry)
        self._ended = Counter(
            "offline_flow_runs", "Runs that ended, since 30 days before this started.", ["flow", "state"], registry=registry
        )
        self._live = Gauge("offline_flow_runs_now", "Runs in a state now.", ["state"], registry=registry)
        self._wait = Histogram(
            "offline_queue_wait_seconds", "From when a run was due until it began.", buckets=WAITS, registry=registry
        )
        self._success = Gauge(
            "offline_last_success_timestamp_seconds", "End of the last completed run.", ["deployment"], registry=registry
        )
        self._seen_until = datetime.now(UTC) - LOOK_BACK
        self._seen: set[Any] = set()
        self._flows: dict[Any, str] = {}
        self._deployments: dict[Any, str] = {}

    def refresh(self) -> None:
        """Ask the server; where it does not answer, only `offline_prefect_up` changes."""
        from prefect.client.orchestration import get_client

        try:
            with get_client(sync_client=True) as client:
                for flow in client.read_flows(limit=PAGE):
                    self._know(flow)
                for run in self._new(client):
                    self._take(client, run)
                self._count(client)
        except Exception as error:
            self._up.set(0)
            log.warning("Prefect's server does not answer: %s: %s", type(error).__name__, first_line(error))
        else:
            self._up.set(1)

    def _new(self, client: Any) -> list[Any]:
        """Runs that ended since the last one that was counted, the earliest first."""
        from prefect.client.schemas.filters import FlowRunFilter
        from prefect.client.schemas.sorting import FlowRunSort

        ended = FlowRunFilter.model_validate({"end_time": {"after_": self._seen_until}})
        ended_runs: list[Any] = []
        for page in range(MOST_PAGES):
            runs = client.read_flow_runs(flow_run_filter=ended, sort=FlowRunSort.END_TIME_DESC, limit=PAGE, offset=page * PAGE)
            ended_runs += runs
            if len(runs) < PAGE:
                break
        return [run for run in reversed(ended_runs) if run.id not in self._seen]

    def _know(self, flow: Any) -> None:
        if flow.id not in self._flows:
            self._flows[flow.id] = flow.name
            for state in FAILED:
                self._ended.labels(flow.name, state)

    def _deployment(self, client: Any, id: Any) -> str:
        """The name of a deployment; empty: it was deleted, and its runs were not."""
        from prefect.exceptions import ObjectNotFound

        if id not in self._deployments:
            try:
                self._deployments[id] = client.read_deployment(id).name
            except ObjectNotFound:
                self._deployments[id] = ""
        return self._deployments[id]

    def _take(self, client: Any, run: Any) -> None:
        """Count a run. What is asked for comes first: a run that is not counted now is counted the next time."""
        if run.flow_id not in self._flows:
            self._know(client.read_flow(run.flow_id))
        is_success = run.deployment_id and run.state_name == "Completed"
        deployment = self._deployment(client, run.deployment_id) if is_success else ""
        if run.end_time > self._seen_until:
            self._seen_until, self._seen = run.end_time, set()
        self._seen.add(run.id)
        self._ended.labels(self._flows[run.flow_id], run.state_name).inc()
        if run.start_time and run.expected_start_time:
            self._wait.observe(max(0.0, (run.start_time - run.expected_start_time).total_seconds()))
        if deployment:
            self._success.labels(deployment).set(run.end_time.timestamp())

    def _count(self, client: Any) -> None:
        for name, kind in LIVE.items():
            state = {"type": {"any_": [kind]}, "name": {"any_": [name]}}
            body = {"flow_runs": {"state": state}}
            self._live.labels(name).set(client.request("POST", "/flow_runs/count", json=body).json())


class RootMetrics:
    """What is below one root: data, trainings, gates and decisions."""

    def __init__(self, registry: CollectorRegistry, roots: Iterable[str]) -> None:
        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, ["root", *labels], registry=registry)

        self._roots = [*roots]
        self._up = gauge("offline_root_up", "Whether the root could be read the last time.")
        self._problems = gauge("offline_root_problems", "Files below the root that cannot be read.")
        self._free = gauge("offline_root_free_bytes", "Free space of the root's disk; local roots alone.")
        self._data = {
            "versions": gauge("offline_dataset_versions", "Versions of a dataset.", "dataset"),
            "episodes": gauge("offline_dataset_episodes", "Episodes of its latest version.", "dataset"),
            "steps": gauge("offline_dataset_steps", "Steps of its latest version.", "dataset"),
            "bytes": gauge("offline_dataset_bytes", "Bytes of its latest version.", "dataset"),
            "created": gauge("offline_dataset_created_timestamp_seconds", "When that version was made.", "dataset"),
        }
        self._gate = gauge(
            "offline_quality", "1 for the verdict of the last check of the latest version.", "dataset", "verdict"
        )
        self._decisions = gauge("offline_decisions", "Decisions by verdict.", "verdict")
        self._speed = gauge("offline_training_steps_per_second", "Steps learned a second, waiting included.", "training")
        self._waiting = gauge("offline_training_data_wait_ratio", "Share of a training's time that waits for data.", "training")

    def refresh(self) -> None:
        """Read the roots again; one that cannot be read keeps its last values, and `offline_root_up` is 0."""
        for root in self._roots:
            try:
                self._show(root, read_contents(root))
            except (OfflineError, OSError) as error:
                self._up.labels(root).set(0)
                log.warning("%s cannot be read: %s", root, first_line(error))
            else:
                self._up.labels(root).set(1)

    def _show(self, root: str, contents: Contents) -> None:
        if contents.root.is_local:
            self._free.labels(root).set(shutil.disk_usage(contents.root.path).free)
        for gauge in (*self._data.values(), self._gate, self._decisions, self._speed, self._waiting):
            gauge.remove_by_labels({"root": root})
        latest = {name: versions[-1] for name, versions in contents.datasets.items()}
        newest = sorted(latest, key=lambda name: latest[name].manifest.created_at, reverse=True)[:MOST_LABELLED]
        for name in newest:
            dataset = latest[name]
            ref = dataset.ref
            values = {
                "versions": len(contents.datasets[name]),
                "episodes": ref.episodes,
                "steps": ref.steps,
                "bytes": ref.bytes,
            }
            for kind, value in (values | {"created": dataset.manifest.created_at.timestamp()}).items():
                self._data[kind].labels(root, name or ".").set(value)
            if (report := last_report(dataset)) is not None:
                self._gate.labels(root, name or ".", report.verdict).set(1)
        for result in contents.results.values():
            if isinstance(result, DecisionResult):
                self._decisions.labels(root, result.verdict).inc()
        trainings = {name: result for name, result in contents.results.items() if isinstance(result, TrainingResult)}
        for name in sorted(trainings, key=lambda name: _made(contents, name), reverse=True)[:MOST_LABELLED]:
            run = trainings[name]
            self._speed.labels(root, name or ".").set(run.steps_per_second)
            self._waiting.labels(root, name or ".").set(run.data_wait_seconds / max(run.seconds, 1e-9))
        self._problems.labels(root).set(len(contents.problems))


def _made(contents: Contents, name: str) -> float:
    policy = contents.policy_of(name)
    return policy.created_at.timestamp() if policy else 0.0


def main() -> None:
    """Serves until it is stopped."""
    parser = argparse.ArgumentParser(
        prog="python -m deployments.metrics", description="Serves metrics of runs and roots to Prometheus, at /metrics."
    )
    parser.add_argument("--root", action="append", default=[], help="Folder or bucket with data and policies; repeat for more.")
    parser.add_argument("--port", type=int, default=PORT)
    parser.add_argument("--address", default="127.0.0.1", help="To listen on; the metrics name datasets and flows.")
    parser.add_argument("--every-seconds", type=float, default=60.0, help="Between two refreshes.")
    chosen = parser.parse_args()
    registry = CollectorRegistry()
    server, roots = ServerMetrics(registry), RootMetrics(registry, chosen.root)
    start_http_server(chosen.port, addr=chosen.address, registry=registry)
    while True:
        server.refresh()
        roots.refresh()
        time.sleep(chosen.every_seconds)


if __name__ == "__main__":
    main()
