"""Processes that want one folder of a bucket for themselves."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from offline_core.data.store import lease
from offline_core.data.store.location import Location
from offline_core.errors import BusyError
from tests.object_storage.processes import Talker, answers, talking
from tests.waiting import wait_until

LEASE_SECONDS, HEARTBEAT_SECONDS, POLL_SECONDS = 2.0, 0.3, 0.1

HOLDER = f"""
import sys
from offline_core.errors import BusyError
from offline_core.data.store import lease
from offline_core.data.store.location import Location

lease.LEASE_SECONDS, lease.HEARTBEAT_SECONDS, lease.POLL_SECONDS = {LEASE_SECONDS}, {HEARTBEAT_SECONDS}, {POLL_SECONDS}
folder = Location.of(sys.argv[1])
folder.files()
print("ready", flush=True)
while sys.stdin.readline():
    try:
        with folder.locked():
            print("held", flush=True)
            sys.stdin.readline()
        print("given back", flush=True)
    except BusyError as error:
        print(error, flush=True)
"""


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "LEASE_SECONDS", LEASE_SECONDS)
    monkeypatch.setattr(lease, "HEARTBEAT_SECONDS", HEARTBEAT_SECONDS)
    monkeypatch.setattr(lease, "POLL_SECONDS", POLL_SECONDS)


@pytest.fixture
def folder(bucket: str) -> Location:
    return Location.of(f"{bucket}/runs/x").make_folder()


@pytest.fixture
def holder(folder: Location) -> Iterator[Talker]:
    """A process that holds the folder."""
    with talking(HOLDER, (folder.uri,)) as [process]:
        assert process.ask() == "held"
        yield process


def test_others_are_told_and_follow_when_it_is_given_back(folder: Location) -> None:
    busy = rf"Another run is writing to {folder.uri}. Wait until it is done"
    with folder.locked(), pytest.raises(BusyError, match=busy), folder.locked():
        pass
    with folder.locked():
        assert folder.files(recursive=False) == [".lock-000002"]


def test_a_note_of_the_dead_holds_no_longer_than_a_lease(folder: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "LEASE_SECONDS", 0.5)
    folder.child(".lock-000005").write(b"somebody 17")
    with folder.locked():
        assert ".lock-000006" in folder.files(recursive=False)


@pytest.mark.slow
def test_a_killed_holder_loses_the_lease(folder: Location, holder: Talker) -> None:
    holder.process.kill()
    with folder.locked():
        pass


@pytest.mark.slow
def test_a_stopped_holder_learns_that_it_lost_the_lease(folder: Location, holder: Talker) -> None:
    holder.process.send_signal(signal.SIGSTOP)
    with folder.locked():
        holder.process.send_signal(signal.SIGCONT)
        assert is_told_of_loss(holder.ask(), folder)
        with pytest.raises(BusyError), folder.locked():
            pass


def is_told_of_loss(told: str, folder: Location) -> bool:
    return told.startswith(f"Lease lost: another run may have taken {folder.uri},") and told.endswith("run again.")


@pytest.mark.slow
def test_of_many_at_once_one_holds_it(folder: Location) -> None:
    with talking(HOLDER, *[(folder.uri,)] * 4) as holders:
        for turn in range(3):
            heard = answers(holders)
            assert heard.count("held") == 1, (turn, heard)
            assert sum(told.startswith("Another run is writing to") for told in heard) == len(holders) - 1
            assert holders[heard.index("held")].ask() == "given back"
    wait_until(lambda: len(folder.files(recursive=False)) == 1 or None, what="one note to be left")
