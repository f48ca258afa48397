"""A store in the memory of this process: what every place has to do, in the shortest time."""

from __future__ import annotations

import uuid

import pytest

from tests.object_storage.contract import PlaceContract
from tests.object_storage.emulators import defined


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> str:
    defined(monkeypatch, memory={"filesystem": "memory"})
    return f"memory://bucket-{uuid.uuid4().hex[:12]}/runs"


class TestMemory(PlaceContract):
    """See there."""
