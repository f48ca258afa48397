"""Numbers of a log that are kept in memory or in a file."""

from __future__ import annotations

import errno
import os
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from offline_core.errors import StorageError
from offline_core.judging.estimation import spooled_column
from offline_core.judging.estimation.spooled_column import SpooledColumn, blocks_of, those_of


@pytest.mark.parametrize("block", [1, 10, 10_000])
def test_slices_are_what_was_appended_in_memory_or_in_a_file(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spooled_column, "BLOCK", block)
    monkeypatch.setattr(spooled_column, "AT_A_TIME", 7)
    found, other = SpooledColumn(), SpooledColumn()
    assert len(found) == 0 and len(found[:]) == 0
    for part in np.split(np.arange(50), [3, 3, 20]):
        found.append(part)
        other.append(-part)
        assert len(found[:2]) == 2, "reading does not move where is written"
    values = np.arange(50.0)
    assert found[:].dtype == np.float64 and (found[:] == values).all() and (other[:] == -values).all()
    assert (found[5:17] == values[5:17]).all() and (found[45:90] == values[45:]).all() and len(found[9:4]) == 0
    assert (np.concatenate([*blocks_of(found)]) == values).all() and (np.asarray(found) == values).all()
    assert those_of(found, values % 3 == 1).tolist() == [*range(1, 50, 3)]
    with pytest.raises(IndexError, match="without a step"):
        found[::2]


def test_its_file_has_no_name_is_shared_and_closed_with_the_last_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spooled_column, "BLOCK", 8)
    columns = [SpooledColumn() for _ in range(2)]
    for column in columns:
        column.append(np.ones(100))
    [descriptor] = {column._spool._file for column in columns}
    assert descriptor is not None and os.fstat(descriptor).st_nlink == 0
    del column, columns[0]
    assert columns[0][98:].tolist() == [1, 1]
    columns.clear()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_threads_may_read_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spooled_column, "BLOCK", 16)
    column = SpooledColumn()
    column.append(np.arange(1_000))
    with ThreadPoolExecutor(4) as pool:
        read = pool.map(lambda begin: (column[begin : begin + 9] == np.arange(begin, begin + 9)).all(), range(900))
        assert all(read)


def test_a_full_disk_and_no_folder_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int, block: bytes, at: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(spooled_column, "BLOCK", 8)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(StorageError, match="the folder of temporary files"):
            SpooledColumn().append(np.ones(9))
    monkeypatch.setattr(spooled_column, "_spools", weakref.WeakSet())
    monkeypatch.setattr("tempfile.tempdir", "/nowhere/at/all")
    SpooledColumn().append(np.ones(7))
    with pytest.raises(StorageError, match="the folder of temporary files"):
        SpooledColumn().append(np.ones(9))
