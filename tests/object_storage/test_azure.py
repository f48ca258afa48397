"""Azure's store: what every place has to do, and its own ways to refuse."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator

import pytest

from offline_core.errors import LocationError, StorageError, StorageUnavailableError
from offline_core.storage.committing import prepare_dataset
from offline_core.storage.dataset import open_dataset
from offline_core.storage.location import Location
from tests.object_storage.contract import PlaceContract
from tests.object_storage.emulators import AZURE_SECRET, azure_connection, azure_server, defined, environment, new_bucket


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    with azure_server() as variables, environment(variables):
        yield


@pytest.fixture
def place() -> str:
    return f"{new_bucket('abfs')}/runs"


class TestAzure(PlaceContract):
    """See there."""


def test_a_container_that_is_not_there(place: str) -> None:
    with pytest.raises(StorageError, match=r"Cannot write abfs://nowhere/x: there is no such bucket: create it"):
        Location.of("abfs://nowhere/x").write(b"")
    with pytest.raises(StorageError, match="there is no such bucket"):
        Location.of("abfs://nowhere/x").create(b"")
    with pytest.raises(StorageError, match="there is no such bucket"):
        prepare_dataset("abfs://nowhere/x")
    with pytest.raises(StorageError, match="there is no such bucket"):
        open_dataset("abfs://nowhere/x")


def test_a_key_that_is_wrong(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nowhere is it taken for an empty folder."""
    connection = os.environ["AZURE_STORAGE_CONNECTION_STRING"].replace(AZURE_SECRET, base64.b64encode(b"wrong" * 12).decode())
    defined(monkeypatch, named={"filesystem": "abfs", "arguments": {"connection_string": connection}})
    there = Location.of(place.replace("abfs", "named")).child("x")
    for ask in (there.read, there.files, there.is_folder, there.delete, there.make_folder, lambda: there.write(b"")):
        with pytest.raises(StorageError, match=r"named://[^:]*: who we are there may not do that"):
            ask()


def test_no_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING")
    defined(monkeypatch, named={"filesystem": "abfs", "arguments": {"max_concurrency": 2}})  # as what was made is kept
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
    with pytest.raises(StorageUnavailableError, match=r"Cannot read gone://bucket/x now: .*Try again when the place answers"):
        Location.of("gone://bucket/x").read()
