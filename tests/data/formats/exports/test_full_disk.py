"""HDF5 on a disk that becomes full: one error that says what to do, no crash of the process, and nothing left."""

from __future__ import annotations

import errno
import io
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from offline_core.data.formats.exporting import ExportConfig, export
from offline_core.data.formats.exports import hdf5_output
from offline_core.data.formats.exports.d4rl import D4rlSink
from offline_core.data.formats.exports.folder import FolderSink
from offline_core.data.formats.exports.hdf5_output import Hdf5Output
from offline_core.data.formats.exports.minari import MinariSink
from offline_core.errors import StorageError
from tests.data.datasets.factories import episode, found, write_dataset

EPISODES = [episode(number, 400) for number in range(6)]
SINKS: dict[str, Callable[[str], FolderSink]] = {
    "d4rl": D4rlSink,
    "minari": lambda uri: MinariSink(uri, dataset_id="cart/pole-v0"),
}
FULL = r"Cannot write .*out.*No space left on device\. The disk is full: free some space or choose another location"


class SmallDisk:
    """Files of it hold so many bytes in all; what fits of a write is written first, as on a real one."""

    room = 0

    class File(io.FileIO):
        def write(self, data: Any) -> int:
            SmallDisk.room, fits = max(0, SmallDisk.room - len(data)), SmallDisk.room
            if not fits:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(memoryview(data)[:fits])


@pytest.mark.parametrize("room", [0, 90, 3_000, 20_000, 70_000])
@pytest.mark.parametrize("format", SINKS)
def test_a_full_disk_is_an_error_wherever_it_is_met(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str, room: int
) -> None:
    monkeypatch.setattr(hdf5_output.io, "FileIO", SmallDisk.File)
    monkeypatch.setattr(SmallDisk, "room", room)
    with pytest.raises(StorageError, match=FULL), SINKS[format](str(tmp_path / "out")) as sink:  # type: ignore[attr-defined]
        for each in EPISODES:
            sink.write([each])
    assert found(tmp_path) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A filesystem of 128 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    try:
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", disk], capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount here")
    if done.returncode:
        pytest.skip(f"no filesystem can be mounted here: {done.stderr.strip()}")
    yield disk
    subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize("format", SINKS)
def test_a_filesystem_that_is_full(tmp_path: Path, small_disk: Path, format: str) -> None:
    write_dataset(tmp_path / "data", EPISODES)
    with pytest.raises(StorageError, match=FULL):
        export(ExportConfig(format=format), dataset=f"{tmp_path}/data", output=f"{small_disk}/out")
    assert found(small_disk) == []


def test_what_is_not_written_is_read_back_until_the_error_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HDF5 reads parts of what it wrote."""
    monkeypatch.setattr(hdf5_output.io, "FileIO", SmallDisk.File)
    monkeypatch.setattr(SmallDisk, "room", 5)
    output = Hdf5Output(str(tmp_path / "x"))
    for at, data in ((0, b"abc"), (3, b"defgh"), (6, b"GHI"), (12, b"mn")):
        output.seek(at)
        assert output.write(data) == len(data)
    output.seek(1)
    assert output.read(20) == b"bcdefGHI\0\0\0mn"
    with pytest.raises(OSError, match="No space left"):
        output.raise_error()


def test_an_output_is_the_file_that_hdf5_writes_alone(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal((300, 70))
    output = Hdf5Output(str(tmp_path / "x"))
    for mode, name in (("w", "a"), ("a", "b")):
        with output.written(), h5py.File(output, mode) as file:
            file.create_dataset(name, data=values, chunks=(7, 70), compression="gzip")
    output.close()
    with h5py.File(tmp_path / "x") as file:
        for name in "ab":
            np.testing.assert_array_equal(file[name][:], values, strict=True)
