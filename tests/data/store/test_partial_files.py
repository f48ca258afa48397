"""What killed runs left is removed by the next one, or after a week where nothing is known of them; nothing else ever is."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from offline_core.data.datasets.commit import prepare_dataset, prepared
from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.store import temporary_names
from offline_core.data.store.partial_files import MIN_AGE_DAYS
from offline_core.data.store.temporary_names import is_of_dead_process, temporary_name
from tests.data.datasets.factories import episode, found, write_dataset

NAME = ".tmp-" + 32 * "0"
OTHER = ".tmp-" + 32 * "f"


def left(path: Path, *, days: float) -> Path:
    """A file of 100 bytes that was last written to so long ago, in a folder that has not changed since."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(100))
    changed = time.time() - days * 24 * 3600
    for each in (path, path.parent):
        os.utime(each, (changed, changed))
    return path


def test_old_temporary_files_and_folders_go(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in (NAME, f"{OTHER}/part-1/rows.arrow", f"_versions/{NAME}", f"cartpole/run-000001-00001/{NAME}"):
        left(tmp_path / name, days=MIN_AGE_DAYS + 0.01)
    old = time.time() - (MIN_AGE_DAYS + 0.01) * 24 * 3600
    os.utime(tmp_path / OTHER, (old, old))
    with caplog.at_level(logging.INFO, logger="offline_core"):
        prepare_dataset(str(tmp_path))
    assert found(tmp_path) == []
    assert not (tmp_path / OTHER).exists()
    assert f"killed runs at {tmp_path}: 4 files and folders, 400 bytes" in caplog.text


def test_younger_ones_stay(tmp_path: Path) -> None:
    """A folder is as young as the youngest thing in it."""
    left(tmp_path / NAME, days=MIN_AGE_DAYS - 0.01)
    left(tmp_path / OTHER / "deep/er/old", days=30)
    left(tmp_path / OTHER / "deep/young", days=1)
    for folder in ("deep/er", "deep", ""):
        os.utime(tmp_path / OTHER / folder, (0, 0))
    before = found(tmp_path)
    prepare_dataset(str(tmp_path))
    assert found(tmp_path) == before and len(before) == 3


WRITING = """
import sys
from offline_core.data.store.holds import writing
from offline_core.data.store.location import Location, temporary_folder

root = Location.of(sys.argv[1])
held = writing(root.child("_versions"))
held.__enter__()
file = root.store.new_file(root.child("data.parquet").path)
file.write(b"half a file")
file.flush()
with temporary_folder(root) as folder:
    folder.child("part").write(b"rows")
    print("writing", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def writer(root: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that writes until it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITING, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "writing\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_what_a_killed_process_wrote_goes_at_once_and_what_one_writes_stays(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with writer(tmp_path / "data"):
        alive = found(tmp_path / "data")
        with writer(tmp_path / "data") as killed:
            assert len(found(tmp_path / "data")) == 2 * len(alive) == 6
            killed.kill()
            killed.wait()
            with prepared(str(tmp_path / "data")):
                assert len(there := {*found(tmp_path / "data")} - {*alive}) == 1 and there.pop().startswith(
                    "_versions/.writer-"
                )
            assert found(tmp_path / "data") == alive
    with prepared(str(tmp_path / "data")):
        pass
    assert found(tmp_path / "data") == [] and not [*(tmp_path / "data").glob(".tmp-*")]


def test_a_process_is_dead_before_it_is_reaped_and_after_another_got_its_number() -> None:
    code = "from offline_core.data.store.temporary_names import temporary_name; print(temporary_name())"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert is_of_dead_process(name)
    assert is_of_dead_process(name)
    own = temporary_name()
    assert not is_of_dead_process(own) and own != temporary_name() and len(own) == len(NAME)
    place, number, start = own[5:15], own[15:21], own[21:29]
    assert int(number, 16) == os.getpid()
    assert is_of_dead_process(own.replace(start, f"{int(start, 16) - 1:08x}"))
    assert not is_of_dead_process(own.replace(place, f"{int(place, 16) ^ 1:010x}")), "of another machine"
    assert not is_of_dead_process(NAME) and not is_of_dead_process(OTHER) and not is_of_dead_process(".tmp-mine")


def test_nothing_else_goes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever its age: data, other people's temporary files, and what a link leads to."""
    data = write_dataset(tmp_path / "data", [episode(0)])
    for name in (".tmp-0123", ".tmp-notes", f"x{NAME}", f"{NAME}.csv", ".lock", "notes/mine.txt"):
        left(tmp_path / "data" / name, days=1000)
    elsewhere = left(tmp_path / "elsewhere" / NAME, days=1000)
    (tmp_path / "data" / "link").symlink_to(elsewhere.parent)
    (tmp_path / "data" / NAME).symlink_to(elsewhere.parent)
    (tmp_path / "data" / OTHER).symlink_to(elsewhere)
    for path in (tmp_path / "data").rglob("*"):
        os.utime(path, (0, 0), follow_symlinks=False)
    before = found(tmp_path)
    prepare_dataset(str(tmp_path / "data"))
    assert found(tmp_path) == before
    assert open_dataset(str(tmp_path / "data")) == data and not caplog.records


def test_what_cannot_be_removed_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def denied(path: str) -> None:
        raise PermissionError(13, "Permission denied", path)

    left(tmp_path / NAME / "rows", days=30)
    left(tmp_path / OTHER, days=30)
    monkeypatch.setattr(shutil, "rmtree", denied)
    prepare_dataset(str(tmp_path))
    assert found(tmp_path) == [f"{NAME}/rows"], "the other one goes all the same"
    assert f"Cannot remove {tmp_path}/{NAME}" in caplog.text and "Permission denied" in caplog.text


def test_machines_that_do_not_number_their_starts_are_told_apart_by_their_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two laptops may have one name, and neither sees the processes of the other."""
    monkeypatch.setattr(temporary_names, "_START_OF_MACHINE", "/nowhere")
    places = set()
    for node in (1, 2):
        monkeypatch.setattr(temporary_names.uuid, "getnode", lambda node=node: node)
        places.add(temporary_names._place.__wrapped__())
    assert len(places) == 2
