"""Clusters that are there and cannot be joined from here."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest
from ray.cluster_utils import Cluster

from offline_core.errors import ClusterError
from offline_core.runtime import ray_address
from offline_core.runtime.ray_address import check_address
from tests.cluster.two_nodes import OBJECT_STORE_BYTES, ROOT
from tests.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.slow

HEAD = {"num_cpus": 1, "object_store_memory": OBJECT_STORE_BYTES, "include_dashboard": False}

HEAD_PROGRAM = f"""
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={HEAD})
print(cluster.address, flush=True)
input()
cluster.shutdown()
"""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks has to import Ray first, while a cluster is starting."""
    monkeypatch.setattr(ray_address, "ANSWER_SECONDS", 60.0)


def refusal(address: str) -> str:
    with pytest.raises(ClusterError) as raised:
        check_address(address)
    return str(raised.value)


def test_a_cluster_with_no_node_on_this_machine() -> None:
    cluster = Cluster(initialize_head=True, head_node_args=HEAD)
    try:
        check_address(cluster.address)
        raylet = psutil.Process(cluster.head_node.all_processes["raylet"][0].process.pid)
        raylet.kill()
        raylet.wait(timeout=PATIENCE_SECONDS)
        assert "this machine runs no node of it" in refusal(cluster.address)
    finally:
        cluster.shutdown()


def test_a_cluster_that_wants_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    right = "a" * 32
    head = subprocess.Popen(
        [sys.executable, "-c", HEAD_PROGRAM],
        cwd=ROOT,
        env=os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": right},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert head.stdout is not None
        address = head.stdout.readline().strip()
        monkeypatch.setenv("RAY_AUTH_MODE", "token")
        monkeypatch.setenv("RAY_AUTH_TOKEN", "b" * 32)
        assert "it requires a token" in refusal(address)
        monkeypatch.setenv("RAY_AUTH_TOKEN", right)
        check_address(address)
        monkeypatch.delenv("RAY_AUTH_MODE")
        assert "Set RAY_AUTH_MODE=token" in refusal(address), "nobody told it that there are tokens"
    finally:
        head.communicate("\n", timeout=PATIENCE_SECONDS)
