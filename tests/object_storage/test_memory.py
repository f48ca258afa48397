"""A store in the memory of this process: what every place has to do, in the shortest time."""

from __future__ import annotations

import subprocess
import sys
import uuid

import pytest

from tests.e2e.orchestra import REPOSITORY
from tests.object_storage.contract import PlaceContract, PlaceEssentials
from tests.object_storage.emulators import defined


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> str:
    defined(monkeypatch, memory={"filesystem": "memory"})
    return f"memory://bucket-{uuid.uuid4().hex[:12]}/runs"


class TestMemory(PlaceEssentials, PlaceContract):
    """See there."""


_FORK = """
import os, sys
from offline_core.data.store.location import Location
from offline_core.errors import StorageError

file = Location.of(sys.argv[1])
file.write(b"x")
if os.fork() == 0:
    try:
        file.read()
    except StorageError as error:
        print(error, flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_a_forked_process_is_told_instead_of_waiting_forever(place: str) -> None:
    """The threads that ask are not in it."""
    said = subprocess.run([sys.executable, "-c", _FORK, place], cwd=REPOSITORY, check=True, capture_output=True, text=True)
    assert "this process was forked from one that used an object store" in said.stdout
    assert "start it anew" in said.stdout
