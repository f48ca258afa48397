"""Copies on a disk of what lies elsewhere."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFile, MemoryFileSystem

from offline_core.data.formats.sources.local_copy import local_folder
from offline_core.data.store.location import Location
from offline_core.errors import CorruptFileError


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Location:
    """Not on a disk, with nothing in it."""
    monkeypatch.setattr(MemoryFileSystem, "store", {})
    monkeypatch.setenv(
        "OFFLINE_FILESYSTEMS",
        json.dumps({"named": {"filesystem": "fsspec.implementations.memory:MemoryFileSystem", "path": "/"}}),
    )
    return Location.of("named://folder")


def test_a_copy_has_all_that_is_below_and_is_gone_afterwards(folder: Location) -> None:
    for name in ("a.txt", "b/c..d/e.txt"):
        MemoryFileSystem.store[f"/folder/{name}"] = MemoryFile(None, None, name.encode())
    with local_folder(folder) as copy:
        assert {name: copy.child(name).read().decode() for name in copy.files()} == {name: name for name in folder.files()}
        assert copy.files() == ["a.txt", "b/c..d/e.txt"]
    assert not Path(copy.path).exists()


@pytest.mark.parametrize("name", ["../../evil.txt", "x/../../../evil.txt", "x/../evil.txt", "/evil.txt", "x/.."])
def test_names_that_lead_elsewhere_on_a_disk(
    name: str, folder: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "a" / "b"))
    name = name if not name.startswith("/") else f"{tmp_path}{name}"
    monkeypatch.setattr(Location, "files", lambda self: [name])  # in an object store, names are any text
    MemoryFileSystem.store[f"/folder/{name}"] = MemoryFile(None, None, b"evil")
    with pytest.raises(CorruptFileError, match="cannot be copied to a disk") as raised, local_folder(folder):
        pass
    assert name in str(raised.value)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
