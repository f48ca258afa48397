"""A real S3 server on the loopback, in a process of its own, with a bucket for each test."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from tests.e2e.orchestra import free_port
from tests.object_storage.faults import Proxy, proxy
from tests.waiting import wait_until

SETTINGS = {
    "AWS_ACCESS_KEY_ID": "key",
    "AWS_SECRET_ACCESS_KEY": "not-to-be-seen-anywhere",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The address of a server that is up; it keeps everything in memory, and nothing afterwards."""
    port = free_port()
    command = [sys.executable, "-m", "tests.object_storage.s3_server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            endpoint = f"http://127.0.0.1:{port}"
            wait_until(lambda: _answers(endpoint), what="the S3 server")
            yield endpoint
        finally:
            server.kill()


@pytest.fixture
def bucket(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URI of a new bucket that this process, and those it starts, can use."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in (SETTINGS | {"AWS_ENDPOINT_URL": s3_endpoint}).items():
        monkeypatch.setenv(name, value)
    name = f"bucket-{uuid.uuid4().hex[:12]}"
    client(s3_endpoint).create_bucket(Bucket=name)
    return f"s3://{name}"


@pytest.fixture
def proxied(bucket: str, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """What stands before `bucket` and sees all that this process, and those it starts, ask of it; at first it does no harm."""
    with proxy(s3_endpoint) as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL", running.url)
        yield running


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port at which every connection is refused, and which nobody else can take meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def client(endpoint: str) -> Any:
    """boto3, with the settings of the tests."""
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name=SETTINGS["AWS_REGION"],
        aws_access_key_id=SETTINGS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=SETTINGS["AWS_SECRET_ACCESS_KEY"],
    )


def _answers(endpoint: str) -> bool:
    import httpx

    try:
        return httpx.get(endpoint, timeout=5).status_code < 500
    except httpx.TransportError:
        return False
