"""A cluster that is joined is told where the data is, and never who we are: its nodes have credentials of their own."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import ray
from ray.cluster_utils import Cluster

from offline_core.data.datasets.dataset import versions
from offline_core.errors import StorageError
from offline_core.policies.recording.config import RecordingConfig
from offline_core.policies.recording.record import record
from offline_core.runtime.ray_session import ray_session
from tests.cluster.two_nodes import OBJECT_STORE_BYTES
from tests.object_storage.conftest import SETTINGS

SECRET = "AWS_SECRET_ACCESS_KEY"
ARCHIVE = json.dumps({"archive": {"filesystem": "sftp", "arguments": {"secret": "${ARCHIVE_SECRET}"}}})


@contextmanager
def node(monkeypatch: pytest.MonkeyPatch, **environment: str) -> Iterator[None]:
    """A cluster of one node with these variables of AWS; inside the block we have our own again, and its address."""
    with monkeypatch.context() as nodes:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            nodes.delenv(name)
        for name, value in ({"AWS_EC2_METADATA_DISABLED": "true"} | environment).items():
            nodes.setenv(name, value)
        settings = {"num_cpus": 1, "object_store_memory": OBJECT_STORE_BYTES, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=settings)
    try:
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        yield
    finally:
        cluster.shutdown()


@pytest.mark.slow
def test_nodes_get_locations_and_no_credentials(bucket: str, cartpole_policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with node(monkeypatch):
        monkeypatch.setenv("OFFLINE_FILESYSTEMS", ARCHIVE)
        monkeypatch.setenv("ARCHIVE_SECRET", "ours")
        with ray_session():
            there = ray.get(ray.remote(lambda: dict(os.environ)).remote())
            config = RecordingConfig(episodes=4, num_recorders=1, envs_per_recorder=2)
            with pytest.raises(StorageError, match=f"no credentials were found: set .* on {platform.node()}"):
                record(config, policy=cartpole_policy, output=f"{bucket}/recording")
        assert versions(f"{bucket}/recording") == []
    assert [there[name] for name in ("AWS_REGION", "AWS_ENDPOINT_URL")] == [
        os.environ[name] for name in ("AWS_REGION", "AWS_ENDPOINT_URL")
    ]
    assert json.loads(there["OFFLINE_FILESYSTEMS"]) == json.loads(ARCHIVE), "Ray has not filled it in"
    assert not {SECRET, "AWS_ACCESS_KEY_ID", "ARCHIVE_SECRET"} & there.keys()


@pytest.mark.slow
def test_nodes_write_with_their_own_credentials(bucket: str, cartpole_policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"AWS_ACCESS_KEY_ID": "of-the-node", SECRET: "secret-of-the-node"}
    config = RecordingConfig(episodes=4, num_recorders=1, envs_per_recorder=2)
    with node(monkeypatch, **own):
        recorded = record(config, policy=cartpole_policy, output=f"{bucket}/recording")
    assert recorded.dataset.episodes == 4 and os.environ[SECRET] == SETTINGS[SECRET]
