"""Numbers of a log that are kept in memory or in a file."""

from __future__ import annotations

import os

import numpy as np
import pytest

from offline_core.judging.estimation import column
from offline_core.judging.estimation.column import Column, blocks_of, those_of


@pytest.mark.parametrize("memory_bytes", [80, 10_000])
def test_slices_are_what_was_appended_in_memory_or_in_a_file(memory_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column, "MEMORY_BYTES", memory_bytes)
    monkeypatch.setattr(column, "AT_A_TIME", 7)
    found = Column()
    assert len(found) == 0 and len(found[:]) == 0
    for part in np.split(np.arange(50), [3, 3, 20]):
        found.append(part)
        assert len(found[:2]) == 2, "reading does not move where is written"
    values = np.arange(50.0)
    assert found[:].dtype == np.float64 and (found[:] == values).all()
    assert (found[5:17] == values[5:17]).all() and (found[45:90] == values[45:]).all() and len(found[9:4]) == 0
    assert (np.concatenate([*blocks_of(found)]) == values).all() and (np.asarray(found) == values).all()
    assert those_of(found, values % 3 == 1).tolist() == [*range(1, 50, 3)]


def test_its_file_has_no_name_and_is_closed_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column, "MEMORY_BYTES", 8)
    found = Column()
    found.append(np.ones(100))
    descriptor = found._file.fileno()
    assert os.fstat(descriptor).st_nlink == 0
    del found
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
