"""Locations: parsing their names, and writing whole or not at all."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from offline_core.data.store.location import Location
from offline_core.data.store.storage_errors import storage_errors
from offline_core.data.store.temporary_names import TEMPORARY
from offline_core.errors import LocationError, StorageError, VersionExistsError
from tests.data.datasets.factories import found, in_small_filesystem


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("/data/runs", "/data/runs"),
        ("/data/runs/", "/data/runs"),
        ("/data/x/../runs", "/data/runs"),
        ("/data/a%20b", "/data/a%20b"),
        ("/data/a#b?c", "/data/a#b?c"),
        ("file:///data/a%20b", "/data/a b"),
        ("file:///data/a%23b#c", "/data/a#b#c"),
        ("file:///data/größe", "/data/größe"),
        ("file:///data/runs/", "/data/runs"),
        ("file://localhost/data", "/data"),
        ("file:/data", "/data"),
        ("FILE:///data", "/data"),
    ],
)
def test_paths_and_file_uris(uri: str, path: str) -> None:
    location = Location.of(uri)
    assert (location.path, location.uri) == (path, path)


@pytest.mark.parametrize("uri", ["runs/x", "./runs/x", "y/../runs/x", "runs//x"])
def test_relative_paths_start_at_the_working_directory(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Location.of(uri).path == f"{tmp_path}/runs/x"


def test_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert Location.of("~/runs").path == "/home/ada/runs"


def test_a_colon_makes_no_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("12:30", "run:1/x"):
        assert Location.of(name).path == f"{tmp_path}/{name}"
    assert Location.of("/a/b:/c").path == "/a/b:/c"


NO_LOCATION = "is no location; give a folder"
UNKNOWN = "is none of file://, s3://, gs://, abfs://, abfss://, hdfs://: use one of them, or define it in OFFLINE_FILES"
NO_BUCKET = "names no bucket; write s3://bucket/folder"
OTHER_MACHINE = "another machine; a file:// URI has three slashes"
UP = "cannot contain '..' or '.'"
SETTINGS = "settings after a question mark: set them as variables"


@pytest.mark.parametrize(
    ("message", "uris"),
    {
        NO_LOCATION: ["", "  ", "\n", "a\0b", "s3://bucket/x\n", "a\tb"],
        UNKNOWN: ["webhdfs://h:1/x", "abfs+x://y/z", "ftp://host/x"],
        NO_BUCKET: ["s3://", "s3:///runs", "s3:/bucket/runs", "s3:bucket/runs", "S3:bucket"],
        OTHER_MACHINE: ["file://server/share", "file://data/runs"],
        UP: ["s3://bucket/../x", "gs://bucket/a/./b", "s3://bucket/a/.."],
        SETTINGS: ["s3://b/x?access_key=hidden", "s3://b?secret_key=hidden&region=x", "gs://b/x/y?token=hidden"],
    }.items(),
    ids=lambda value: value[:12] if isinstance(value, str) else "",
)
def test_what_is_no_location_is_refused_without_its_secrets(message: str, uris: list[str]) -> None:
    for uri in uris:
        with pytest.raises(LocationError, match=re.escape(message)) as caught:
            Location.of(uri)
        assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("uri", "suggested"),
    [
        ("s3:/bucket/runs", "s3://bucket/folder"),
        ("gs://", "gs://bucket/folder"),
        ("abfs:///x", "abfs://bucket/folder"),
        ("hdfs:runs", "hdfs://namenode:8020/folder"),
        ("hdfs:runs", "hdfs:///folder"),
        ("file://here/x", "file:///data/runs"),
        *((f"{scheme}://b/x", "s3://") for scheme in ("s3a", "s3n")),
        ("gcs://b/x", "gs://"),
        *((f"{scheme}://b/x", "abfs://") for scheme in ("az", "abs", "adl")),  # abs is RLlib's
        *(("ftp://b/x", f"{scheme}://") for scheme in ("s3", "gs", "abfs", "abfss", "hdfs")),
    ],
)
def test_uris_that_errors_suggest_are_places(uri: str, suggested: str) -> None:
    with pytest.raises(LocationError, match=re.escape(suggested)):
        Location.of(uri)
    whole = f"{suggested}b/x" if suggested.endswith("://") else suggested
    assert Location.of(whole).uri == whole.removeprefix("file://")


def test_files_are_listed_sorted_and_relative(tmp_path: Path) -> None:
    for name in ("b", "a/z", "a/y/x"):
        Location.of(str(tmp_path)).child(name).write(b"")
    (tmp_path / "empty").mkdir()
    root = Location.of(str(tmp_path))
    assert root.files() == ["a/y/x", "a/z", "b"]
    assert root.files(recursive=False) == ["b"]
    assert root.child("missing").files() == []


def test_write_replaces_and_read_gives_it_back(tmp_path: Path) -> None:
    location = Location.of(f"file://{tmp_path}/with%20blank/x")
    location.write(b"first, and longer")
    location.write(b"second")
    assert location.read() == b"second"
    assert (tmp_path / "with blank" / "x").read_bytes() == b"second"
    assert found(tmp_path) == ["with blank/x"]


@pytest.mark.parametrize("function", ["fsync", "replace"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(5, "Input/output error")])
def test_an_interrupted_write_leaves_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, error: BaseException
) -> None:
    location = Location.of(str(tmp_path / "x"))
    location.write(b"old")

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(os, function, fail)
    with pytest.raises(KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else StorageError):
        location.write(b"new")
    assert location.read() == b"old"
    assert found(tmp_path) == ["x"]


def test_a_killed_write_leaves_the_old_content(tmp_path: Path) -> None:
    location = Location.of(str(tmp_path / "x"))
    location.write(b"old")
    code = (
        "import os, signal, sys\nfrom offline_core.data.store.location import Location\n"
        "os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "Location.of(sys.argv[1]).write(b'new')"
    )
    done = subprocess.run([sys.executable, "-c", code, location.path], check=False)
    assert done.returncode == -signal.SIGKILL
    assert location.read() == b"old"
    [left] = set(found(tmp_path)) - {"x"}
    assert left.startswith(TEMPORARY)


def test_create_does_not_replace(tmp_path: Path) -> None:
    location = Location.of(str(tmp_path / "x"))
    location.create(b"first")
    with pytest.raises(VersionExistsError, match=f"{location.uri} exists already"):
        location.create(b"second")
    assert location.read() == b"first"
    assert found(tmp_path) == ["x"]


@pytest.mark.parametrize("action", ["write", "create", "make_folder"])
def test_below_a_file_nothing_can_be_written(tmp_path: Path, action: str) -> None:
    (tmp_path / "file").write_bytes(b"content")
    location = Location.of(str(tmp_path / "file" / "x"))
    arguments = () if action == "make_folder" else (b"1",)
    with pytest.raises(StorageError, match=f"{tmp_path}/file/x.*choose another location"):
        getattr(location, action)(*arguments)
    assert (tmp_path / "file").read_bytes() == b"content"
    assert found(tmp_path) == ["file"]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    with pytest.raises(StorageError, match="A file is where a folder has to be"):
        Location.of(str(tmp_path / "file")).make_folder()
    with pytest.raises(StorageError, match=f"Cannot list {tmp_path}/file"):
        Location.of(str(tmp_path / "file")).files()


def test_what_is_not_there_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=f"Cannot read {tmp_path}/x: it does not exist"):
        Location.of(str(tmp_path / "x")).read()
    with pytest.raises(StorageError, match=f"Cannot read {tmp_path}"):
        Location.of(str(tmp_path)).read()


@pytest.mark.skipif(not os.path.isdir("/sys/kernel"), reason="there is no /sys, which refuses folders even to root")
def test_no_permission() -> None:
    with pytest.raises(StorageError, match=r"/sys/kernel/offline.*Choose another location"):
        Location.of("/sys/kernel/offline").make_folder()


def test_make_folder_leaves_an_empty_folder(tmp_path: Path) -> None:
    made = Location.of(str(tmp_path / "a" / "b")).make_folder()
    assert made.make_folder() == made
    assert (tmp_path / "a" / "b").is_dir()
    assert found(tmp_path) == []


def test_full_and_read_only_disks(tmp_path: Path) -> None:
    script = """
import os, subprocess
from offline_core.errors import StorageError
from offline_core.data.store.location import Location
from offline_core.data.store.storage_errors import storage_errors

def attempt(action, *arguments):
    try:
        action(*arguments)
    except StorageError as error:
        return str(error)

location, size = Location.of(root), 4096
location.child("x").write(b"old")
with open(f"{root}/filler", "wb", buffering=0) as filler:
    try:
        while True:
            filler.write(b"0" * size)
    except OSError:
        pass
full = {
    "write": attempt(location.child("x").write, b"1" * size),
    "create": attempt(location.child("y").create, b"1" * size),
    "make_folder": attempt(location.child("folder").make_folder),
}
after_full = sorted(name for _, _, names in os.walk(root) for name in names), location.child("x").read().decode()
subprocess.run(["mount", "-o", "remount,ro", root], check=True)
read_only = {
    "write": attempt(location.child("x").write, b"1"),
    "create": attempt(location.child("y").create, b"1"),
    "make_folder": attempt(location.make_folder),
}
result = full, after_full, read_only, location.child("x").read().decode()
"""
    full, after_full, read_only, still = in_small_filesystem(tmp_path, script)
    places = {"write": "x", "create": "y", "make_folder": "folder"}
    for action, message in full.items():
        assert f"{tmp_path}/{places[action]}" in message
        assert "The disk is full: free some space or choose another location." in message
    assert after_full == [["filler", "x"], "old"]
    for message in read_only.values():
        assert str(tmp_path) in message
        assert "Choose another location, or mount it for writing." in message
    assert still == "old"


def test_a_full_disk_on_the_way_to_a_bucket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with (
        pytest.raises(StorageError, match=rf"s3://b/x: .*written to {tmp_path} first.*set TMPDIR"),
        storage_errors("write", "s3://b/x"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
