"""Numbers of a log that are kept in memory or in a file."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

import numpy as np
import pytest

from offline_core.errors import StorageError
from offline_core.judging.estimation import trajectories
from offline_core.judging.estimation.trajectories import spooled


@pytest.mark.parametrize("most", [1, 7, 10_000])
def test_numbers_are_what_was_written_in_memory_or_in_a_file(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trajectories, "MOST_IN_MEMORY", most)
    numbers = spooled(3, 50)
    assert type(numbers) is np.ndarray and numbers.dtype == np.float64 and numbers.shape == (3, 50) and not numbers.any()
    numbers[1, 5:17] = np.arange(12)
    assert numbers[1, 5:17].tolist() == [*range(12)] and numbers.sum() == 66


def test_its_file_has_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trajectories, "MOST_IN_MEMORY", 8)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert spooled(9).tolist() == [0.0] * 9 and not [*tmp_path.iterdir()]


def test_no_folder_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trajectories, "MOST_IN_MEMORY", 8)
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere/at/all")
    assert len(spooled(8)) == 8
    with pytest.raises(StorageError, match="the folder of temporary files"):
        spooled(9)


def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trajectories, "MOST_IN_MEMORY", 8)
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: io.FileIO("/dev/full", "r+"))
    with pytest.raises(StorageError, match="the folder of temporary files"):
        spooled(9)
