"""Azure's store: what every place has to do, and its own ways to refuse."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator

import pytest

from offline_core.data.store.location import Location
from offline_core.errors import LocationError, StorageError, StorageUnavailableError
from tests.object_storage.contract import ServedContract, ServedEssentials
from tests.object_storage.emulators import AZURE_SECRET, azure_connection, azure_server, defined, environment, new_bucket


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    with azure_server() as variables, environment(variables):
        yield


@pytest.fixture
def place() -> str:
    return f"{new_bucket('abfs')}/runs"


@pytest.fixture
def denied(place: str, monkeypatch: pytest.MonkeyPatch) -> Location:
    """By a wrong key."""
    connection = os.environ["AZURE_STORAGE_CONNECTION_STRING"].replace(AZURE_SECRET, base64.b64encode(b"wrong" * 12).decode())
    defined(monkeypatch, named={"filesystem": "abfs", "arguments": {"connection_string": connection}})
    return Location.of(place.replace("abfs", "named")).child("x")


class TestAzure(ServedEssentials):
    """See there."""


@pytest.mark.slow  # one code for all stores, which TestS3 and TestMemory try
class TestAllOfAzure(ServedContract):
    """See there."""


def test_no_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING")
    defined(monkeypatch, named={"filesystem": "abfs", "arguments": {"endpoint": "http://nowhere:1"}})
    with pytest.raises(StorageError, match="no account was named: set AZURE_STORAGE_CONNECTION_STRING"):
        Location.of("named://bucket/x").files()


def test_an_account_in_the_uri() -> None:
    """As Azure's own tools write it."""
    place = Location.of("abfs://container@account.dfs.core.windows.net/runs/a")
    assert place.path == "container/runs/a"
    assert place.parent.uri == "abfs://container@account.dfs.core.windows.net/runs"
    assert Location.of(place.parent.child("a").uri) == place
    assert Location.of("abfs://container/runs/a").path == place.path
    assert Location.of("abfs://container/runs/a") != place
    with pytest.raises(LocationError, match="whole bucket"):
        _ = place.parent.parent.parent


@pytest.mark.slow  # Azure's client tries for 80 seconds, and does not let us say otherwise
def test_a_server_that_is_gone(monkeypatch: pytest.MonkeyPatch, silent_port: int) -> None:
    defined(monkeypatch, gone={"filesystem": "abfs", "arguments": {"connection_string": azure_connection(silent_port)}})
    with pytest.raises(StorageUnavailableError, match=r"Cannot read gone://bucket/x now: .*Try again when the storage answers"):
        Location.of("gone://bucket/x").read()
