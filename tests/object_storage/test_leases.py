"""Processes that want one folder of a bucket for themselves."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from offline_core.errors import BusyError
from offline_core.storage import lease
from offline_core.storage.location import Location
from tests.e2e.orchestra import wait_until

HERE = Path(__file__).parents[2]
LEASE_SECONDS, PULSE_SECONDS, LOOK_SECONDS = 3.0, 0.4, 0.1

HOLDER = f"""
import sys
from offline_core.errors import BusyError
from offline_core.storage import lease
from offline_core.storage.location import Location

lease.LEASE_SECONDS, lease.PULSE_SECONDS, lease.LOOK_SECONDS = {LEASE_SECONDS}, {PULSE_SECONDS}, {LOOK_SECONDS}
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


class Holder:
    """A process that takes the folder, and gives it back, when it is told to."""

    def __init__(self, uri: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, uri], cwd=HERE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.hear() == "ready"

    def say(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go on\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def take(self) -> str:
        self.say()
        return self.hear()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "LEASE_SECONDS", LEASE_SECONDS)
    monkeypatch.setattr(lease, "PULSE_SECONDS", PULSE_SECONDS)
    monkeypatch.setattr(lease, "LOOK_SECONDS", LOOK_SECONDS)


@pytest.fixture
def folder(bucket: str) -> Location:
    return Location.of(f"{bucket}/runs/x").make_folder()


@pytest.fixture
def holder(folder: Location) -> Iterator[Holder]:
    """One that holds the folder."""
    process = Holder(folder.uri)
    try:
        assert process.take() == "held"
        yield process
    finally:
        process.end()


def test_others_are_told_soon(folder: Location, holder: Holder) -> None:
    begin = time.monotonic()
    with pytest.raises(BusyError, match=rf"Another run is writing to {folder.uri}. Wait until it is done"), folder.locked():
        pass
    assert time.monotonic() - begin < LEASE_SECONDS
    assert holder.take() == "given back"
    begin = time.monotonic()
    with folder.locked():
        assert time.monotonic() - begin < LEASE_SECONDS


def test_who_is_killed_holds_it_no_longer_than_a_lease(folder: Location, holder: Holder) -> None:
    holder.process.kill()
    begin = time.monotonic()
    with folder.locked():
        assert LEASE_SECONDS - PULSE_SECONDS < time.monotonic() - begin < 2 * LEASE_SECONDS


def test_who_was_stopped_learns_that_it_was_overtaken(folder: Location, holder: Holder) -> None:
    holder.process.send_signal(signal.SIGSTOP)
    with folder.locked():
        holder.process.send_signal(signal.SIGCONT)
        assert is_told_of_loss(holder.take(), folder)
        with pytest.raises(BusyError), folder.locked():
            pass


def is_told_of_loss(told: str, folder: Location) -> bool:
    return told.startswith(f"Another run may have taken {folder.uri} over") and told.endswith("run again.")


def test_of_many_at_once_one_holds_it(folder: Location) -> None:
    holders = [Holder(folder.uri) for _ in range(6)]
    try:
        for turn in range(5):
            for each in holders:
                each.say()
            heard = [each.hear() for each in holders]
            assert heard.count("held") == 1, (turn, heard)
            assert sum(told.startswith("Another run is writing to") for told in heard) == len(holders) - 1
            winner = holders[heard.index("held")]
            assert winner.take() == "given back"
    finally:
        for each in holders:
            each.end()
    wait_until(lambda: len(folder.files(recursive=False)) == 1 or None, seconds=5, what="one note to be left")
