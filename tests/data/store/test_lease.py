"""Leases, on this machine's disk, where they are not needed, but are as they are elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.core.exceptions import ServiceRequestError
from pyarrow import fs

from offline_core.data.store import lease as module
from offline_core.data.store.lease import LeaseLostError, lease
from offline_core.data.store.stores import LocalStore
from offline_core.errors import StorageUnavailableError
from tests.data.datasets.factories import found
from tests.waiting import PATIENCE_SECONDS, wait_until

STORE = LocalStore()
LEASE_SECONDS = 1.5


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEASE_SECONDS", LEASE_SECONDS)
    monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(module, "POLL_SECONDS", 0.02)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[str]:
    yield str(tmp_path)
    assert not [thread for thread in threading.enumerate() if thread.name == "lease"]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that were waited before each look at a holder's file, without waiting."""
    waited: list[float] = []
    monkeypatch.setattr(module.time, "sleep", waited.append)
    return waited


def number(folder: str) -> list[str]:
    return [name for name in found(Path(folder)) if name.startswith(".lock-")]


def dead_holder(folder: str, text: bytes = b"somebody 17") -> None:
    STORE.put(f"{folder}/.lock-000005", text)


def test_one_after_the_other(folder: str) -> None:
    for turn in (1, 2, 3):
        with lease(STORE, folder):
            assert number(folder) == [f".lock-{turn:06d}"]
        assert Path(folder, f".lock-{turn:06d}").read_bytes() == b"released"


def test_a_held_lease_is_refused_at_the_next_heartbeat(folder: str) -> None:
    with lease(STORE, folder), pytest.raises(BlockingIOError, match=r"held by another process"):
        lease(STORE, folder).__enter__()
    with lease(STORE, folder):
        pass


def test_a_holder_without_heartbeats_loses_the_lease_and_learns_of_it(folder: str) -> None:
    """The first one is held up in the middle of a heartbeat."""
    stopped, go_on = threading.Event(), threading.Event()

    class Stopping(LocalStore):
        def put(self, path: str, data: bytes) -> None:
            if not go_on.is_set():
                stopped.set()
                go_on.wait()
            super().put(path, data)

    with pytest.raises(LeaseLostError, match=r"sent no heartbeat for too long, and another may hold it now"):  # noqa: SIM117
        with lease(Stopping(), folder):
            stopped.wait()
            with lease(STORE, folder):
                go_on.set()
                wait_until(lambda: Path(folder, ".lock-000001").exists() or None, what="the late heartbeat")
                with pytest.raises(BlockingIOError):
                    lease(STORE, folder).__enter__()
    with lease(STORE, folder):
        assert number(folder) == [".lock-000003"]


def test_a_dead_holder_loses_the_lease_in_time_and_not_before(folder: str, looks: list[float]) -> None:
    dead_holder(folder)
    with lease(STORE, folder):
        assert sum(looks) == pytest.approx(LEASE_SECONDS)
        assert number(folder) == [".lock-000006"]


def test_what_was_released_is_not_waited_for(folder: str, looks: list[float]) -> None:
    dead_holder(folder, b"released")
    with lease(STORE, folder):
        assert looks == []


@pytest.mark.usefixtures("looks")
def test_an_outdated_number_does_not_get_the_lease(folder: str) -> None:
    """Number 6 was given, given back and deleted meanwhile, and 7 is held."""
    dead_holder(folder)

    class Slow(LocalStore):
        def create(self, path: str, data: bytes) -> None:
            with lease(STORE, folder):
                pass
            other.__enter__()
            super().create(path, data)

    other = lease(STORE, folder)
    with pytest.raises(BlockingIOError, match=r"others were first"):
        lease(Slow(), folder).__enter__()
    assert number(folder) == [".lock-000007"]
    other.__exit__(None, None, None)


def test_an_error_inside_is_the_one_to_see(folder: str) -> None:
    with pytest.raises(KeyError), lease(STORE, folder):
        raise KeyError
    with lease(STORE, folder):
        pass


def test_a_place_that_is_gone_is_not_waited_for(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    with pytest.raises(StorageUnavailableError), lease(STORE, folder):
        monkeypatch.setattr(LocalStore, "put", lambda *arguments: asked.append(arguments))
        raise StorageUnavailableError("gone")
    wait_until(lambda: not [thread for thread in threading.enumerate() if thread.name == "lease"], what="the end")
    assert all(data != b"released" for _, _, data in asked)


class Down(LocalStore):
    """Whose client raises errors of its own once `is_down`."""

    is_down = False
    refused = threading.Event()

    def put(self, path: str, data: bytes) -> None:
        self._asked()
        super().put(path, data)

    @property
    def filesystem(self) -> fs.FileSystem:
        self._asked()
        return super().filesystem

    def _asked(self) -> None:
        if type(self).is_down:
            self.refused.set()
            raise ServiceRequestError("later")


@pytest.fixture
def down(monkeypatch: pytest.MonkeyPatch) -> type[Down]:
    monkeypatch.setattr(Down, "is_down", False)
    monkeypatch.setattr(Down, "refused", threading.Event())
    return Down


def test_a_failed_heartbeat_is_not_the_last_one(folder: str, down: type[Down]) -> None:
    """Whatever the client raises; one that died would let a second run in."""
    with lease(Down(), folder):
        down.is_down = True
        assert down.refused.wait(PATIENCE_SECONDS)
        down.is_down = False
        path = Path(folder, ".lock-000001")
        last = path.read_bytes()
        wait_until(lambda: path.read_bytes() != last or None, what="the next heartbeat")
        with pytest.raises(BlockingIOError):
            lease(STORE, folder).__enter__()


@pytest.mark.usefixtures("looks")
def test_a_lease_that_cannot_be_released_is_waited_for(folder: str, down: type[Down]) -> None:
    with lease(Down(), folder):
        down.is_down = True
    with lease(STORE, folder):
        assert number(folder) == [".lock-000002"]


def test_a_lease_that_cannot_be_verified_counts_as_lost(folder: str, down: type[Down]) -> None:
    with pytest.raises(LeaseLostError, match="another may hold it now"), lease(Down(), folder):
        down.is_down = True
        with lease(STORE, folder):
            pass
