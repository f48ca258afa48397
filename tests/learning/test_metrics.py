"""The numbers of a run: whole at any moment, drawn where nothing can be appended, and no reason to fail."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from offline_core.errors import StorageError
from offline_core.learning import metrics
from offline_core.learning.metrics import MetricsLog
from offline_core.storage.location import Location


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Location:
    """A place that cannot be appended to: a folder of this machine by another name."""
    define = {"far": {"filesystem": "pyarrow.fs:LocalFileSystem", "path": str(tmp_path), "one_writer": True}}
    monkeypatch.setenv("OFFLINE_FILESYSTEMS", json.dumps(define))
    return Location.of("far://run")


def records_at(folder: Location) -> list[float]:
    return [json.loads(line)["loss"] for line in folder.child("metrics.jsonl").read().splitlines()]


def drawn_at(folder: Path) -> list[float]:
    """Losses as TensorBoard shows them."""
    if not (place := folder / "run" / "tensorboard").is_dir():
        return []
    board = EventAccumulator(str(place)).Reload()
    return [event.value for event in board.Scalars("loss")] if "loss" in board.Tags()["scalars"] else []


def test_each_record_is_there_when_it_was_added_and_drawn_at_the_end(far: Location, tmp_path: Path) -> None:
    with MetricsLog(far) as log:
        for step in range(3):
            log.add(step, {"loss": float(step)})
            assert records_at(far) == [float(known) for known in range(step + 1)]
        assert drawn_at(tmp_path) == []
    assert drawn_at(tmp_path) == [0.0, 1.0, 2.0]


def test_it_is_drawn_now_and_then(far: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "SECONDS_BETWEEN_PUTS", 0.0)
    with MetricsLog(far) as log:
        log.add(1, {"loss": 1.0})
        assert drawn_at(tmp_path) == [1.0]


def test_what_still_holds_is_kept_and_drawn_again(far: Location, tmp_path: Path) -> None:
    with MetricsLog(far) as log:
        for step in range(3):
            log.add(step, {"loss": float(step)})
    with MetricsLog(far, kept=lambda record: record["updates"] < 2) as log:
        log.add(5, {"loss": 5.0})
    assert records_at(far) == drawn_at(tmp_path) == [0.0, 1.0, 5.0]


def test_a_board_that_cannot_be_put_there_is_a_warning(
    far: Location, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "SECONDS_BETWEEN_PUTS", 0.0)
    with caplog.at_level(logging.WARNING), MetricsLog(far) as log:
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "tensorboard").write_text("in the way")
        log.add(1, {"loss": 1.0})
    assert records_at(far) == [1.0]
    assert caplog.text.count("TensorBoard's numbers are not there yet: Cannot write far://run/tensorboard/") == 2


def test_a_run_that_ended_because_of_the_place_does_not_wait_for_it_again(far: Location, tmp_path: Path) -> None:
    """For that may take minutes with a server that says nothing."""
    with pytest.raises(StorageError), MetricsLog(far) as log:
        log.add(1, {"loss": 1.0})
        raise StorageError("gone")
    assert drawn_at(tmp_path) == []
    with pytest.raises(ValueError, match="no fault of the place"), MetricsLog(far) as log:
        log.add(1, {"loss": 1.0})
        raise ValueError("no fault of the place")
    assert drawn_at(tmp_path) == [1.0]
