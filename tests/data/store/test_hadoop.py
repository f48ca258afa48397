"""`hdfs:` URIs: which client of PyArrow's they make, with which arguments; there is no server here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from offline_core.data.store import fsspec_adapter
from offline_core.data.store.filesystems import VARIABLE
from offline_core.data.store.location import Location
from offline_core.errors import LocationError, StorageError
from tests.data.formats.sources.factories import check_steps, imported_episodes, steps, write_steps

DEFAULT = {"host": "default", "port": 0}


@pytest.fixture
def hadoop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What PyArrow's client is made with; in its place is a folder, with episodes below /archive/cartpole."""
    made: list[dict[str, Any]] = []

    def client(**arguments: Any) -> fs.FileSystem:
        made.append(arguments)
        return fs.SubTreeFileSystem(str(tmp_path / "hadoop"), fs.LocalFileSystem())

    fsspec_adapter.open_filesystem.cache_clear()
    monkeypatch.setattr(fs, "HadoopFileSystem", client)
    write_steps(tmp_path / "hadoop" / "archive" / "cartpole" / "x.parquet", steps())
    return made


@pytest.mark.parametrize(
    ("uri", "written", "arguments"),
    [
        ("hdfs:/archive/cartpole", "hdfs:///archive/cartpole", DEFAULT),  # as in RLlib's document
        ("hdfs:///archive/cartpole/", "hdfs:///archive/cartpole", DEFAULT),
        ("HDFS://namenode:8020/archive/cartpole", "hdfs://namenode:8020/archive/cartpole", {"host": "namenode", "port": 8020}),
        ("hdfs://ha/archive//cartpole", "hdfs://ha/archive/cartpole", {"host": "ha", "port": 0}),
        ("hdfs://ada@h:1/archive/cartpole", "hdfs://ada@h:1/archive/cartpole", {"host": "h", "port": 1, "user": "ada"}),
    ],
)
def test_the_forms_of_a_uri(
    hadoop: list[dict[str, Any]], tmp_path: Path, uri: str, written: str, arguments: dict[str, Any]
) -> None:
    place = Location.of(uri)
    assert (place.uri, place.path, Location.of(written)) == (written, "/archive/cartpole", place)
    assert place.parent.path == "/archive" and place.child("x.parquet").is_file()
    assert hadoop == [arguments]
    check_steps(imported_episodes(tmp_path, uri))


def test_arguments_are_set_once_for_the_installation(
    hadoop: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As is that there is one writer, without which nothing is written there."""
    with pytest.raises(StorageError, match=r"only one of two writers.*one_writer in OFFLINE_FILESYSTEMS"):
        Location.of("hdfs:///new").child("x").create(b"1")
    spec = {"filesystem": "hdfs", "arguments": {"host": "h", "replication": 1}, "path": "/archive", "one_writer": True}
    monkeypatch.setenv(VARIABLE, json.dumps({"hdfs": spec}))
    Location.of("hdfs:///new").child("x").create(b"1")
    assert (tmp_path / "hadoop/archive/new/x").read_bytes() == b"1"
    assert hadoop[-1] == {"host": "h", "port": 0, "replication": 1}


@pytest.mark.parametrize("uri", ["hdfs:", "hdfs:/", "hdfs://", "hdfs:archive", "hdfs://h:x/a"])
def test_what_names_no_place(uri: str) -> None:
    with pytest.raises(LocationError, match=r"is no location in Hadoop; write hdfs://namenode:8020/folder, or hdfs:///folder"):
        Location.of(uri)


def test_credentials_are_refused() -> None:
    with pytest.raises(LocationError, match="has credentials in it") as told:
        Location.of("hdfs://ada:hunter2@h/a")
    assert "hunter2" not in str(told.value)


@pytest.mark.parametrize("uri", ["hdfs://namenode:8020/folder", "hdfs:///folder"])
def test_a_client_that_is_not_installed_is_named(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def client(**_: Any) -> None:
        raise OSError("Unable to load libjvm\ndlopen(/usr/lib/jvm/libjvm.so) failed")

    fsspec_adapter.open_filesystem.cache_clear()
    monkeypatch.setattr(fs, "HadoopFileSystem", client)
    with pytest.raises(StorageError, match=rf"Cannot look at {uri}: Hadoop's client cannot be loaded .* JAVA_HOME") as told:
        Location.of(uri).is_file()
    assert "dlopen" not in str(told.value)
