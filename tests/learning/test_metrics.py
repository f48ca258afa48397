"""The numbers of a run: whole at any moment, drawn where nothing can be appended, and no reason to fail."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import shutil
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from offline_core.errors import StorageError
from offline_core.learning import metrics
from offline_core.learning.metrics import MetricsLog
from offline_core.learning.state import TrainingState
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


def test_on_a_disk_each_record_is_there_when_it_was_added(tmp_path: Path) -> None:
    here = Location.of(str(tmp_path))
    with MetricsLog(here) as log:
        for step in range(3):
            log.add(step, {"loss": float(step)})
            assert records_at(here) == [float(known) for known in range(step + 1)]
            assert log.unwritten == []


def test_elsewhere_the_first_record_is_put_at_once_and_the_others_at_the_end(far: Location, tmp_path: Path) -> None:
    with MetricsLog(far) as log:
        for step in range(3):
            log.add(step, {"loss": float(step)})
            assert records_at(far) == drawn_at(tmp_path) == [0.0]
        assert [json.loads(line) for line in log.unwritten] == [{"updates": 1, "loss": 1.0}, {"updates": 2, "loss": 2.0}]
    assert records_at(far) == drawn_at(tmp_path) == [0.0, 1.0, 2.0]


def test_all_are_put_now_and_then(far: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MetricsLog(far) as log:
        for step in range(3):
            log.add(step, {"loss": float(step)})
        monkeypatch.setattr(metrics, "SECONDS_BETWEEN_PUTS", 0.0)
        log.add(3, {"loss": 3.0})
        assert records_at(far) == drawn_at(tmp_path) == [0.0, 1.0, 2.0, 3.0]
        assert log.unwritten == []


def test_what_still_holds_is_kept_and_drawn_again(far: Location, tmp_path: Path) -> None:
    with MetricsLog(far) as log:
        for step in range(3):
            log.add(step, {"loss": float(step)})
    with MetricsLog(far, after=TrainingState(run="", updates=1)) as log:
        log.add(5, {"loss": 5.0})
        assert records_at(far) == [0.0, 1.0, 5.0], "at once: what no longer holds may not be taken for what came after it"
    assert records_at(far) == drawn_at(tmp_path) == [0.0, 1.0, 5.0]


@pytest.mark.parametrize("put", [False, True], ids=["never put", "put after the state"])
def test_a_state_has_the_records_that_were_not_put_yet(far: Location, tmp_path: Path, put: bool) -> None:
    """Be it that the run is killed before they are, or after that; and that it has nothing to add when it goes on."""
    with contextlib.suppress(StorageError), MetricsLog(far) as log:
        for step in range(3):
            log.add(step, {"loss": [0.0, math.nan, 0.1][step]})
        state = TrainingState(run="", updates=2, unwritten=log.unwritten).model_dump_json()
        log.add(3, {"loss": 3.0})
        if not put:
            raise StorageError("gone")
    assert len(records_at(far)) == (4 if put else 1)
    with MetricsLog(far, after=TrainingState.model_validate_json(state)):
        pass
    assert records_at(far) == pytest.approx([0.0, math.nan, 0.1], nan_ok=True)
    assert drawn_at(tmp_path) == pytest.approx([0.0, math.nan, 0.1], nan_ok=True)


def test_metrics_that_cannot_be_put_at_the_end_end_the_run_unless_something_else_does(
    far: Location, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def ended(error: Exception | None) -> None:
        with MetricsLog(far) as log:
            log.add(1, {"loss": 1.0})
            log.add(2, {"loss": 2.0})
            (tmp_path / "run").rename(tmp_path / "moved")
            (tmp_path / "run").write_text("in the way")
            if error is not None:
                raise error

    with pytest.raises(StorageError, match=r"Cannot write far://run/metrics\.jsonl"):
        ended(None)
    shutil.rmtree(tmp_path / "moved")
    (tmp_path / "run").unlink()
    with pytest.raises(ValueError, match="no fault of the place"):
        ended(ValueError("no fault of the place"))
    assert "The last metrics are not written: Cannot write far://run/metrics.jsonl" in caplog.text


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
        log.add(2, {"loss": 2.0})
        raise StorageError("gone")
    assert records_at(far) == drawn_at(tmp_path) == [1.0]
    with pytest.raises(ValueError, match="no fault of the place"), MetricsLog(far) as log:
        log.add(1, {"loss": 1.0})
        log.add(2, {"loss": 2.0})
        raise ValueError("no fault of the place")
    assert records_at(far) == drawn_at(tmp_path) == [1.0, 2.0]
