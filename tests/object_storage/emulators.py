"""Google's and Azure's stores on the loopback, in processes of their own."""

from __future__ import annotations

import base64
import contextlib
import email.utils
import hmac
import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest

from offline_core.data.store.clouds import AzureCloud
from tests.e2e.orchestra import free_port
from tests.waiting import wait_until

AZURITE = "AZURITE"
"""Variable with the path of `azurite-blob`, if it is not on the PATH: npm install azurite."""
AZURE_ACCOUNT = "devstoreaccount1"
AZURE_SECRET = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's, which is the same for all the world."""

_NOBODY = ("GOOGLE_", "GCE_", "GCS", "STORAGE_EMULATOR", "AZURE_", "OFFLINE_FILESYSTEMS")


@contextlib.contextmanager
def gcs_server() -> Iterator[dict[str, str]]:
    """The environment in which `gs://` is an emulator; its bucket `forbidden` refuses everything."""
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    with _serving([sys.executable, "-m", "tests.object_storage.gcs_server", str(port)], endpoint):
        yield {"STORAGE_EMULATOR_HOST": endpoint}


@contextlib.contextmanager
def azure_server() -> Iterator[dict[str, str]]:
    """The environment in which `abfs://` is Azurite; skips if it is not installed."""
    program = os.environ.get(AZURITE) or shutil.which("azurite-blob")
    if not program:
        pytest.skip(f"no azurite-blob on the PATH, nor in {AZURITE}: npm install azurite")
    port = free_port()
    command = [program, "--inMemoryPersistence", "--blobPort", str(port), "--skipApiVersionCheck", "--silent"]
    with _serving(command, f"http://127.0.0.1:{port}"):
        yield {"AZURE_STORAGE_CONNECTION_STRING": azure_connection(port)}


def azure_connection(port: int, secret: str = AZURE_SECRET) -> str:
    """The connection string of an Azurite."""
    return (
        f"DefaultEndpointsProtocol=http;AccountName={AZURE_ACCOUNT};AccountKey={secret};"
        f"BlobEndpoint=http://127.0.0.1:{port}/{AZURE_ACCOUNT};"
    )


@contextlib.contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """These variables, and no others that say who we are."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(_NOBODY)]:
            patch.delenv(name)
        for name, value in variables.items():
            patch.setenv(name, value)
        yield


def new_bucket(scheme: str) -> str:
    """The URI of a bucket, or container, that was not there before."""
    name = f"bucket-{uuid.uuid4().hex[:12]}"
    if scheme == "gs":
        httpx.put(f"{os.environ['STORAGE_EMULATOR_HOST']}/{name}").raise_for_status()
    else:
        _new_container(name)
    return f"{scheme}://{name}"


def _new_container(name: str) -> None:
    """obstore makes none: a request that is signed by its account's key."""
    account = AzureCloud.of({})
    assert account.endpoint and account.account_key
    now = email.utils.formatdate(usegmt=True)
    headers = {"x-ms-date": now, "x-ms-version": "2021-08-06"}
    resource = f"/{AZURE_ACCOUNT}/{AZURE_ACCOUNT}/{name}\nrestype:container"
    signed = "\n".join(["PUT", *[""] * 11, *(f"{header}:{value}" for header, value in headers.items()), resource])
    digest = hmac.digest(base64.b64decode(account.account_key), signed.encode(), "sha256")
    headers["Authorization"] = f"SharedKey {AZURE_ACCOUNT}:{base64.b64encode(digest).decode()}"
    httpx.put(f"{account.endpoint.rstrip('/')}/{name}?restype=container", headers=headers).raise_for_status()


def defined(monkeypatch: pytest.MonkeyPatch, **filesystems: dict[str, Any]) -> None:
    """These are the named filesystems, each with its arguments."""
    monkeypatch.setenv("OFFLINE_FILESYSTEMS", json.dumps(filesystems))


@contextlib.contextmanager
def _serving(command: list[str], endpoint: str) -> Iterator[None]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            wait_until(lambda: _answers(endpoint), what=command[0])
            yield
        finally:
            server.kill()


def _answers(endpoint: str) -> bool:
    try:
        httpx.get(endpoint, timeout=5)
    except httpx.TransportError:
        return False
    return True
