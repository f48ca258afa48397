"""A filesystem that fails now and then: what cannot be asked is not absent, and what breaks off leaves nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from offline_core.data.datasets.dataset import is_dataset, open_dataset, versions
from offline_core.data.store import lease
from offline_core.data.store.fsspec_adapter import parse_url
from offline_core.data.store.location import Location
from offline_core.errors import StorageUnavailableError


class Failing(MemoryFileSystem):
    """Whose server does not answer once `is_down`."""

    cachable = False
    store: dict[str, Any] = {}  # noqa: RUF012, fsspec's own way
    pseudo_dirs = [""]  # noqa: RUF012
    is_down = False

    def _asked(self) -> None:
        if type(self).is_down:
            raise ConnectionRefusedError(111, "Connection refused")

    def info(self, path: str, **arguments: Any) -> Any:
        self._asked()
        return super().info(path, **arguments)

    def ls(self, path: str, detail: bool = True, **arguments: Any) -> Any:
        self._asked()
        return super().ls(path, detail=detail, **arguments)

    def _open(self, path: str, *arguments: Any, **more: Any) -> Any:
        self._asked()
        return super()._open(path, *arguments, **more)

    def _rm(self, path: str) -> None:
        self._asked()
        super()._rm(path)


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Location:
    monkeypatch.setattr(Failing, "store", {})
    monkeypatch.setattr(Failing, "pseudo_dirs", [""])
    spec = {"filesystem": f"{__name__}:Failing", "one_writer": True}
    monkeypatch.setenv("OFFLINE_FILESYSTEMS", json.dumps({"failing": spec}))
    root = Location.of("failing://runs")
    root.child("a/b.txt").write(b"1")
    return root


ASKED: dict[str, Callable[[Location], Any]] = {
    "read": lambda root: root.child("a/b.txt").read(),
    "files": lambda root: root.files(),
    "is_file": lambda root: root.child("a/b.txt").is_file(),
    "is_folder": lambda root: root.is_folder(),
    "delete": lambda root: root.child("a/b.txt").delete(),
    "versions": lambda root: versions(root.uri),
    "is_dataset": lambda root: is_dataset(root.uri),
    "open_dataset": lambda root: open_dataset(root.uri),
}


@pytest.mark.parametrize("question", ASKED)
def test_no_answer_is_not_an_absence(question: str, root: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    """As isfile and isdir, by which PyArrow asks, would have it."""
    monkeypatch.setattr(Failing, "is_down", True)
    with pytest.raises(StorageUnavailableError, match="Connection refused"):
        ASKED[question](root)


def test_a_lease_is_not_taken_from_one_who_cannot_be_asked_for(root: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    with root.locked():
        held = root.files(recursive=False)
        listed = lease._numbers

        def then_down(*arguments: Any) -> list[int]:
            numbers = listed(*arguments)
            monkeypatch.setattr(Failing, "is_down", True)
            return numbers

        monkeypatch.setattr(lease, "_numbers", then_down)
        with pytest.raises(StorageUnavailableError), root.locked():
            pass
        monkeypatch.setattr(lease, "_numbers", listed)
        monkeypatch.setattr(Failing, "is_down", False)
        assert root.files(recursive=False) == held


def test_a_file_in_place_of_a_folder_is_not_an_empty_folder(root: Location) -> None:
    with pytest.raises(Exception, match="Not a directory"):
        root.child("a/b.txt").files()


def test_a_server_stands_in_the_uri_or_in_the_arguments() -> None:
    assert parse_url("ftp", "server/runs/a", {}) == ("/runs/a", {"host": "server"})
    assert parse_url("ftp", "runs/a", {"host": "server"}) == ("/runs/a", {"host": "server"})


def test_names_that_look_like_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = {"filesystem": "fsspec.implementations.memory:MemoryFileSystem", "path": "/", "one_writer": True}
    monkeypatch.setenv("OFFLINE_FILESYSTEMS", json.dumps({"mem": spec}))
    for folder in ("st*r", "g[1]", "w?at"):
        file = Location.of(f"mem://{folder}/plain.json")
        file.write(b"1")
        file.write(b"2")
        assert (file.read(), file.parent.files()) == (b"2", ["plain.json"])
