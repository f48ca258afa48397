"""The numbers of a run: whole at any moment, drawn where nothing can be appended, and no reason to fail."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from offline_core.data.store.location import Location
from offline_core.errors import StorageError
from offline_core.learning import metrics
from offline_core.learning.metrics import MetricsLog, MetricsTail
from offline_core.learning.state import TrainingState


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Location:
    """A place that cannot be appended to: a folder of this machine by another name."""
    define = {"far": {"filesystem": "pyarrow.fs:LocalFileSystem", "path": str(tmp_path), "one_writer": True}}
    monkeypatch.setenv("OFFLINE_FILESYSTEMS", json.dumps(define))
    return Location.of("far://run")


def records_at(folder: Location) -> list[float]:
    return [value for _, value in metrics.series(folder, "loss")]


def drawn_at(folder: Path) -> list[float]:
    """Losses as TensorBoard shows them."""
    if not (place := folder / "run" / "tensorboard").is_dir():
        return []
    board = EventAccumulator(str(place)).Reload()
    events = board.Scalars("loss") if "loss" in board.Tags()["scalars"] else []
    return [event.value for event in sorted(events, key=lambda event: event.step)]


def test_on_a_disk_each_record_is_there_when_it_was_added(tmp_path: Path) -> None:
    here = Location.of(str(tmp_path))
    with MetricsLog(here) as log:
        for step in range(3):
            log.add({"updates": step, "loss": float(step)})
            assert records_at(here) == [float(known) for known in range(step + 1)]
            assert log.unwritten == []


def test_elsewhere_the_first_record_is_put_at_once_and_the_others_at_the_end(far: Location, tmp_path: Path) -> None:
    with MetricsLog(far) as log:
        for step in range(3):
            log.add({"updates": step, "loss": float(step)})
            assert records_at(far) == drawn_at(tmp_path) == [0.0]
        assert [json.loads(line) for line in log.unwritten] == [{"updates": 1, "loss": 1.0}, {"updates": 2, "loss": 2.0}]
    assert records_at(far) == drawn_at(tmp_path) == [0.0, 1.0, 2.0]


def test_what_is_written_in_all_grows_with_the_length_of_the_run(
    far: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it is written to, and though a record is readable as soon as it is written."""
    written = 0

    def counted(method: Callable[..., Any]) -> Callable[..., Any]:
        def write(place: Location, data: bytes) -> Any:
            nonlocal written
            written += len(data) * ("metrics" in place.uri)
            return method(place, data)

        return write

    monkeypatch.setattr(Location, "write", counted(Location.write))
    monkeypatch.setattr(metrics, "SECONDS_BETWEEN_PUTS", 0.0)
    monkeypatch.setattr(metrics.TensorBoard, "put", lambda board: None)
    for folder in (Location.of(str(tmp_path / "near")), far):
        written, tail = 0, MetricsTail(folder)
        with MetricsLog(folder) as log:
            for step in range(200):
                log.add({"updates": step, "loss": float(step)})
                tail.tell()
                assert tail.updates == step
            assert len(records_at(folder)) == 200
            assert len(TrainingState(updates=200, progress=200, unwritten=log.unwritten).model_dump_json()) < 500
        whole = len(folder.child("metrics.jsonl").read())
        assert len(records_at(folder)) == 200 and not folder.child("metrics").files()
        assert written <= 2 * whole + 100, "each record once, and once more when the run ends"


def test_late_records_come_in_the_order_of_their_updates(tmp_path: Path) -> None:
    here = Location.of(str(tmp_path))
    with MetricsLog(here) as log:
        for record in ({"updates": 1, "loss": 1.0}, {"updates": 2, "loss": 0.5}, {"updates": 1, "episode_return_mean": 9.0}):
            log.add(record)
        assert metrics.series(here, "episode_return_mean") == [(1, 9.0)]
    assert [json.loads(line)["updates"] for line in here.child("metrics.jsonl").read().splitlines()] == [1, 1, 2]


def test_a_line_that_is_cut_off_is_left_out(tmp_path: Path) -> None:
    here = Location.of(str(tmp_path))
    with MetricsLog(here) as log:
        log.add({"updates": 1, "loss": 1.0})
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"updates": 2, "lo')
    assert records_at(here) == [1.0] and MetricsTail(here).updates == 1
    with MetricsLog(here, after=TrainingState(updates=1, progress=1, iterations=1)) as log:
        log.add({"updates": 2, "loss": 2.0})
        assert records_at(here) == [1.0, 2.0]


def test_lost_records_are_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with MetricsLog(Location.of(str(tmp_path)), after=TrainingState(updates=9, progress=9, iterations=3)) as log:
        log.add({"updates": 10, "loss": 1.0})
    assert "metrics.jsonl has 0 of 3 iterations; the others are lost" in caplog.text


def test_all_are_put_now_and_then(far: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with MetricsLog(far) as log:
        for step in range(3):
            log.add({"updates": step, "loss": float(step)})
        monkeypatch.setattr(metrics, "SECONDS_BETWEEN_PUTS", 0.0)
        log.add({"updates": 3, "loss": 3.0})
        assert records_at(far) == drawn_at(tmp_path) == [0.0, 1.0, 2.0, 3.0]
        assert log.unwritten == []


def test_what_still_holds_is_kept_and_drawn_again(far: Location, tmp_path: Path) -> None:
    with MetricsLog(far) as log:
        for step in range(3):
            log.add({"updates": step, "loss": float(step)})
    with MetricsLog(far, after=TrainingState(updates=1, progress=1, iterations=2)) as log:
        log.add({"updates": 5, "loss": 5.0})
        assert records_at(far) == [0.0, 1.0, 5.0], "at once: what no longer holds may not be taken for what came after it"
    assert records_at(far) == drawn_at(tmp_path) == [0.0, 1.0, 5.0]


@pytest.mark.parametrize("put", [False, True], ids=["never put", "put after the state"])
def test_a_state_has_the_records_that_were_not_put_yet(far: Location, tmp_path: Path, put: bool) -> None:
    """Be it that the run is killed before they are, or after that; and that it has nothing to add when it goes on."""
    with contextlib.suppress(StorageError), MetricsLog(far) as log:
        for step in range(3):
            log.add({"updates": step, "loss": [0.0, math.nan, 0.1][step]})
        state = TrainingState(updates=2, progress=2, iterations=3, unwritten=log.unwritten).model_dump_json()
        log.add({"updates": 3, "loss": 3.0})
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
            log.add({"updates": 1, "loss": 1.0})
            log.add({"updates": 2, "loss": 2.0})
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
        log.add({"updates": 1, "loss": 1.0})
    assert records_at(far) == [1.0]
    assert caplog.text.count("TensorBoard's numbers are not written yet: Cannot write far://run/tensorboard/") == 2


def test_a_run_that_ended_because_of_the_place_does_not_wait_for_it_again(far: Location, tmp_path: Path) -> None:
    """For that may take minutes with a server that says nothing."""
    with pytest.raises(StorageError), MetricsLog(far) as log:
        log.add({"updates": 1, "loss": 1.0})
        log.add({"updates": 2, "loss": 2.0})
        raise StorageError("gone")
    assert records_at(far) == drawn_at(tmp_path) == [1.0]
    with pytest.raises(ValueError, match="no fault of the place"), MetricsLog(far) as log:
        log.add({"updates": 1, "loss": 1.0})
        log.add({"updates": 2, "loss": 2.0})
        raise ValueError("no fault of the place")
    assert records_at(far) == drawn_at(tmp_path) == [1.0, 2.0]
