"""Google's store: what every place has to do, and its own ways to refuse."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from offline_core.data.store import clouds, object_store
from offline_core.data.store.location import Location
from offline_core.data.store.partial_files import remove_partial_files
from offline_core.errors import StorageError, StorageUnavailableError
from tests.cases import slow_but
from tests.object_storage.contract import ServedContract, ServedEssentials
from tests.object_storage.emulators import defined, environment, gcs_server, new_bucket
from tests.object_storage.faults import Answer, proxy


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    with gcs_server() as variables, environment(variables):
        yield


@pytest.fixture
def place() -> str:
    return f"{new_bucket('gs')}/runs"


@pytest.fixture
def denied() -> Location:
    return Location.of("gs://forbidden/x")


class TestGoogle(ServedEssentials):
    """See there."""


@pytest.mark.slow  # one code for all stores, which TestS3 and TestMemory try
class TestAllOfGoogle(ServedContract):
    """See there."""


def test_no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.delenv("STORAGE_EMULATOR_HOST")
    with pytest.raises(StorageError, match="no credentials were found: set GOOGLE_APPLICATION_CREDENTIALS"):
        Location.of("gs://bucket/x").files()


def test_credentials_are_those_that_google_s_library_finds(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refreshed: list[object] = []
    found = SimpleNamespace(token="t", expiry=datetime.now(UTC) + timedelta(hours=1), refresh=refreshed.append)
    monkeypatch.setattr("google.auth.default", lambda scopes: (found, "project"))
    clouds._google_credentials.cache_clear()
    endpoint = os.environ["STORAGE_EMULATOR_HOST"]
    defined(monkeypatch, named={"filesystem": "gs", "arguments": {"endpoint": endpoint, "anonymous": False}})
    file = Location.of(place.replace("gs://", "named://")).child("x")
    file.write(b"1")
    assert file.read() == b"1" and len(refreshed) == 1
    clouds._google_credentials.cache_clear()


def test_a_server_that_is_gone(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, silent_port: int) -> None:
    """It may pass, and is not taken for an absence."""
    monkeypatch.setattr(object_store, "RETRY_SECONDS", 0.1)
    defined(monkeypatch, gone={"filesystem": "gs", "arguments": {"endpoint": f"http://127.0.0.1:{silent_port}"}})
    there = Location.of("gone://bucket/x")
    for ask in (there.read, there.files, there.is_folder, there.delete, there.make_folder, lambda: there.create(b"")):
        with pytest.raises(
            StorageUnavailableError, match=r"Cannot .* gone://bucket/x now: could not connect to .*Try again when the storage"
        ):
            ask()
    assert not caplog.records


@pytest.mark.parametrize("status", slow_but([503, 502, 429], 503))
def test_what_leaves_a_store_has_a_number(place: str, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    monkeypatch.setattr(object_store, "RETRY_SECONDS", 0.1)
    with proxy(os.environ["STORAGE_EMULATOR_HOST"], lambda request: Answer(status, "later")) as down:
        defined(monkeypatch, far={"filesystem": "gs", "arguments": {"endpoint": down.url}})
        there = Location.of(place.replace("gs://", "far://"))
        store, path = there.store, there.path
        file = store.new_file(path)
        for ask in (
            lambda: store.put(path, b""),
            lambda: store.create(path, b""),
            lambda: store.delete(path),
            lambda: store.make_folder(path),
            lambda: store.put_file(file, path),
            lambda: store.lock(path).__enter__(),
        ):
            with pytest.raises(OSError) as caught:
                ask()
            assert caught.value.errno == errno.ETIMEDOUT
        store.discard(file)


def test_partial_files_that_cannot_be_listed_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    remove_partial_files(Location.of("gs://forbidden/x"))
    assert "Cannot look for partial files of killed runs at gs://forbidden/x" in caplog.text
