"""What the server does by itself: deployments/automations.py, with a server that does it."""

from __future__ import annotations

import http.server
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from offline_core.data.datasets.dataset import open_dataset
from offline_core.policies.manifest import read_policy_manifest
from tests.e2e.orchestra import FINAL, Orchestra
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

SECRET = "/hooks/only-the-receiver-knows"
CHAIN = ("prune what was recorded", "check what was pruned", "train on what passed")


@pytest.fixture(scope="module")
def received() -> Iterator[list[dict[str, Any]]]:
    """What a webhook was told, as it comes; the first entry is its URL, and with which status it answers."""
    told: list[dict[str, Any]] = []

    class Receiver(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.append({"path": self.path} | json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            if told[0]["answer"] is not None:
                self.send_response(told[0]["answer"])
                self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        told.append({"url": f"http://127.0.0.1:{server.server_port}{SECRET}", "answer": 204})
        yield told
        server.shutdown()


@pytest.fixture(scope="module")
def automated(orchestra: Orchestra, received: list[dict[str, Any]]) -> Iterator[Orchestra]:
    """With all automations; they are off afterwards."""
    automate(orchestra, received[0]["url"])
    yield orchestra
    for each in orchestra.ask("POST", "/automations/filter", {}):
        orchestra.ask("PATCH", f"/automations/{each['id']}", {"enabled": False})


def automate(orchestra: Orchestra, url: str) -> str:
    """Runs `python -m deployments.automations` and returns what it prints."""
    command = [sys.executable, "-m", "deployments.automations", "--profile", "smoke", "--silence-seconds", "90"]
    done = orchestra.run([*command, "--webhook-url-env", "FAILURES_URL"], FAILURES_URL=url)
    assert SECRET not in done.stdout + done.stderr
    return done.stdout


def automations(orchestra: Orchestra) -> dict[str, bool]:
    return {each["name"]: each["enabled"] for each in orchestra.ask("POST", "/automations/filter", {})}


def test_put_twice_they_are_there_once_and_stay_switched_as_they_were(
    automated: Orchestra, received: list[dict[str, Any]]
) -> None:
    off = dict.fromkeys(CHAIN, False)
    assert automations(automated) == {"zombies": True, "failures": True, **off}
    automated.prefect("automation", "resume", CHAIN[0])
    automated.prefect("automation", "pause", "zombies")
    said = automate(automated, received[0]["url"])
    assert automations(automated) == {"zombies": False, "failures": True, **off, CHAIN[0]: True}
    assert "zombies: off; on: prefect automation resume 'zombies'" in said
    automated.prefect("automation", "pause", CHAIN[0])
    automated.prefect("automation", "resume", "zombies")


def test_a_failure_is_told_to_the_webhook(automated: Orchestra, received: list[dict[str, Any]]) -> None:
    run = automated.submit("check/check-smoke", {"dataset": "runs/nowhere"})
    failed = automated.wait_for(run, "FAILED")

    def told() -> list[dict[str, Any]]:
        return [each for each in received[1:] if run in each["text"]]

    (told_once,) = wait_until(told, what="the webhook to be called")
    assert told_once["path"] == SECRET
    assert failed["state"]["message"] in told_once["text"] and "check failed" in told_once["text"]


@pytest.mark.parametrize(("answer", "event"), [(500, "executed"), (None, "failed")])
def test_a_webhook_that_takes_nothing_changes_no_run_and_is_an_event(
    automated: Orchestra, received: list[dict[str, Any]], answer: int | None, event: str
) -> None:
    """Prefect takes an answer of 500 for an answer; the event has the status. None: the connection ends."""
    query = {"filter": {"event": {"name": [f"prefect.automation.action.{event}"]}}}

    def found() -> list[dict[str, Any]]:
        told = [each["payload"] for each in automated.ask("POST", "/events/filter", query)["events"]]
        return [each for each in told if each["action_type"] == "call-webhook" and each.get("status_code") == answer]

    received[0]["answer"] = answer
    automated.wait_for(automated.submit("check/check-smoke", {"dataset": "runs/nowhere"}), "FAILED")
    told = wait_until(found, what=f"the event {event}")
    assert SECRET not in str(told)
    received[0]["answer"] = 204


def test_recorded_data_is_pruned_checked_and_learned_from(automated: Orchestra) -> None:
    automated.wait_for(automated.submit("train-expert/train-expert-smoke"), "COMPLETED")
    for name in CHAIN:
        automated.prefect("automation", "resume", name)
    automated.wait_for(automated.submit("record/record-smoke"), "COMPLETED")
    recorded = open_dataset(str(automated.root / "runs" / "smoke" / "recording")).ref

    def run_of(flow: str) -> dict[str, Any]:
        def done() -> dict[str, Any] | None:
            query = {"flows": {"name": {"any_": [flow]}}, "flow_runs": {"state": {"type": {"any_": FINAL}}}}
            runs = automated.ask("POST", "/flow_runs/filter", query)
            found = [each for each in runs if each["created_by"] and each["created_by"]["type"] == "AUTOMATION"]
            return found[0] if found else None

        return wait_until(done, what=f"{flow} to be run by an automation")

    pruning = run_of("prune")
    assert pruning["state_type"] == "COMPLETED", pruning["state"]["message"]
    pruned = open_dataset(f"{recorded.uri}-pruned").ref
    assert pruning["parameters"] | {"config": None} == {
        "dataset": recorded.uri,
        "version": recorded.version,
        "output": pruned.uri,
        "config": None,
    }
    checking = run_of("check")
    assert checking["state_type"] == "COMPLETED", checking["state"]["message"]
    assert (checking["parameters"]["dataset"], checking["parameters"]["version"]) == (pruned.uri, pruned.version)
    training = run_of("train")
    assert training["state_type"] == "COMPLETED", training["state"]["message"]
    assert (training["parameters"]["dataset"], training["parameters"]["version"]) == (pruned.uri, pruned.version)
    (parent,) = [each for each in read_policy_manifest(f"{pruned.uri}-policy/best").parents if each.kind == "dataset"]
    assert parent.fingerprint == pruned.fingerprint


def test_a_run_whose_worker_died_with_it_is_a_crash(automated: Orchestra) -> None:
    run = automated.submit(
        "train-expert/train-expert-smoke",
        {
            "output": "runs/zombie",
            "config": {"total_steps": 10**9, "evaluation": {"target_return": 10**6}, "compute": {"compile": False}},
        },
    )
    automated.wait_for_task(run, "train_expert")
    try:
        for pid in [*(worker.pid for worker in automated.workers), automated.pid_of(run)]:
            os.kill(pid, signal.SIGKILL)
        message = automated.wait_for(run, "CRASHED")["state"]["message"]
        assert message.startswith("Nothing was heard of this run for 90 s")
    finally:
        automated.start_worker()
