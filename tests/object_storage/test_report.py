"""The home page of a root in a bucket: written there, and as complete as on a disk."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import offline_core as offline
from offline_core.data.store.location import Location
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
    root.child("going on/metrics.jsonl").write(b'{"updates": 3, "loss": 1.5}\n')
    manifest = root.child("cut/_versions/000001.json")
    manifest.write(manifest.read()[:200])
    proxied.plan = lambda request: FORBIDDEN if "/closed/" in request.path and "/_versions/" not in request.path else None
    proxied.seen.clear()

    result = offline.report(root.uri, episodes=10)

    assert result.uri == f"{root.uri}/report.html"
    (tmp_path / "report.html").write_bytes(root.child("report.html").read())
    data = data_of(tmp_path / "report.html")
    assert data["root"] == root.uri
    datasets = {each["name"]: each for each in data["datasets"]}
    assert datasets.keys() == {"recording", "closed"}
    recording = datasets["recording"]
    assert recording["quality"]["verdict"] == recording["versions"][0]["verdict"]
    assert (recording["episodes"]["total"], len(recording["episodes"]["steps"])) == (30, 10)
    assert (datasets["closed"]["quality"], datasets["closed"]["episodes"]) == (None, None)
    assert [name for name, _ in data["problems"]] == [
        "closed",
        "closed version 1",
        "closed/_checks/000001.json",
        "cut/_versions/000001.json",
    ]
    assert dict(zip(data["runs"]["name"], data["runs"]["dataset"], strict=True)) == {"policy": "recording v1", "going on": ""}
    assert [each["name"] for each in data["policies"]] == ["policy/best"]
    assert [node["lines"][0] for node in data["graph"]["nodes"]] == ["closed version 1", "recording version 1", "policy/best"]
    assert data["graph"]["edges"] == [[1, 2]]
    read = Counter(each.request.path for each in proxied.seen if each.request.method == "GET")
    assert {path: count for path, count in read.items() if count > 1 and not path.endswith(".parquet")} == {}
