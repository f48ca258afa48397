"""The home page of a root in a bucket: written there, and as complete as on a disk."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

import offline_core as offline
from offline_core.data.store.json_files import line_of
from offline_core.data.store.location import Location
from offline_core.keeping.homepage.config import ReportConfig
from offline_core.keeping.homepage.serving import LiveSite
from tests.keeping.homepage.served import rows_in
from tests.keeping.homepage.test_report import data_of
from tests.object_storage.contract import write_dataset
from tests.object_storage.faults import Proxy, refusal

FORBIDDEN = refusal(403, "AccessDenied")


@pytest.mark.slow
def test_a_root_in_a_bucket_has_its_page_there(bucket: str, proxied: Proxy, tmp_path: Path) -> None:
    root = Location.of(f"{bucket}/team/runs")
    for name, count in (("recording", 30), ("cut", 31), ("closed", 32)):
        write_dataset(root.child(name).uri, count)
        offline.check(root.child(name).uri)
    offline.train(root.child("recording").uri, algorithm="bc", optimizer={"max_epochs": 2}, output=root.child("policy").uri)
    root.child("going on/metrics.jsonl").write(line_of({"updates": 3, "loss": 1.5}))
    manifest = root.child("cut/_versions/000001.json")
    manifest.write(manifest.read()[:200])
    proxied.plan = lambda request: FORBIDDEN if "/closed/" in request.path and "/_versions/" not in request.path else None
    proxied.seen.clear()

    result = offline.report(root.uri, episodes=10)

    assert result.uri == f"{root.uri}/report.html"
    (tmp_path / "report.html").write_bytes(root.child("report.html").read())
    data = data_of(tmp_path / "report.html")
    assert data["overview"]["root"] == root.uri
    assert data["dataset"].keys() == {"recording", "closed"}
    recording = data["dataset"]["recording"]
    assert recording["quality"]["verdict"] == recording["versions"][0]["verdict"]
    assert (data["episodes"]["recording"]["total"], len(data["episode"]["recording"])) == (30, 10)
    assert (data["dataset"]["closed"]["quality"], data["episodes"]["closed"]) == (None, None)
    assert [name for name, _ in data["overview"]["problems"]] == [
        "closed",
        "closed version 1",
        "closed/_checks/000001.json",
        "cut/_versions/000001.json",
    ]
    runs = rows_in(data["runs"])
    assert {name: run["dataset"] for name, run in runs.items()} == {"policy": "recording v1", "going on": ""}
    assert [*rows_in(data["policies"])] == ["policy/best"]
    assert [node["lines"][0] for node in data["graph"]["nodes"]] == ["closed version 1", "recording version 1", "policy/best"]
    assert data["graph"]["edges"] == [[1, 2]]
    read = Counter(each.request.path for each in proxied.seen if each.request.method == "GET")
    assert {path: count for path, count in read.items() if count > 1 and not path.endswith(".parquet")} == {}


@pytest.mark.slow
def test_episodes_in_a_bucket_are_marked_and_what_is_new_there_appears(bucket: str) -> None:
    root = Location.of(f"{bucket}/team/served")
    write_dataset(root.child("recording").uri, 6)
    root.child("going on/metrics.jsonl").write(line_of({"updates": 3, "loss": 1.5}))
    live = LiveSite(root.uri, ReportConfig())
    live.mark("recording", 4, True, id=None)
    root.child("going on/metrics/000000002.jsonl").write(line_of({"updates": 6, "loss": 1.0}))
    live._next_look = 0.0
    assert json.loads(live.answer(["episodes", "recording"], None)[2])["marked"] == [4]
    assert rows_in(json.loads(live.answer(["runs"], None)[2]))["going on"]["updates"] == 6
    pruned = offline.prune(root.child("recording").uri, output=root.child("good").uri, marked="drop")
    assert pruned.result.dropped == {"marked": 1}
