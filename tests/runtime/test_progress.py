"""How far a piece of work is: counted without a terminal, told at the pace asked for, seen from other threads."""

from __future__ import annotations

import io
import threading

import pytest

from offline_core.runtime import progress as module
from offline_core.runtime.progress import Progress, observe, progress


@pytest.fixture
def every_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS_BETWEEN_REPORTS", 0.0)


def test_an_observer_sees_the_count_without_a_terminal_up_to_the_total(every_report: None) -> None:
    seen: list[Progress] = []
    with observe(seen.append), progress(5, what="record", unit="episode") as bar:
        bar.update(2)
        bar.to(5)
    assert [(report.n, report.ended) for report in seen] == [(2, False), (5, False), (5, True)]
    assert {(report.what, report.unit, report.total) for report in seen} == {("record", "episode", 5)}


def test_between_two_reports_lies_some_time_but_the_last_always_comes() -> None:
    seen: list[Progress] = []
    with observe(seen.append), progress(1000, what="copy", unit="episode") as bar:
        for _ in range(1000):
            bar.update(1)
    assert [(report.n, report.ended) for report in seen] == [(1000, True)]


def test_the_end_is_told_once_and_also_of_work_that_failed() -> None:
    seen: list[Progress] = []
    with observe(seen.append), pytest.raises(KeyError), progress(10, what="copy", unit="episode") as bar:
        bar.update(3)
        raise KeyError
    bar.close()
    assert [(report.n, report.ended) for report in seen] == [(3, True)]


def test_what_was_done_before_does_not_count_for_the_rate() -> None:
    assert Progress("train", "update", n=300, total=None, seconds=10.0, began=100).rate == 20.0
    assert Progress("train", "update", n=0, total=None, seconds=0.0).rate == 0.0


def test_a_report_reads_well() -> None:
    half = Progress("record", "episode", n=120, total=500, seconds=4.0)
    assert str(half) == "record: 120 of 500 episodes, 30 a second, about 13 s to go"
    noted = Progress("train", "update", n=1500, total=None, seconds=1000.0, began=1000, notes={"mean_return": 12.345})
    assert str(noted) == "train: 1,500 updates, 0.5 a second, mean return 12.35"
    assert str(Progress("read", "file", n=0, total=3, seconds=20.0)) == "read: 0 of 3 files"
    assert str(Progress("read", "file", n=3, total=3, seconds=300.0, ended=True)).endswith("0.01 a second, done after 5 min")
    assert str(Progress("read", "file", n=2, total=3, seconds=9000.0, ended=True)).endswith("ended after 2.5 h")


def test_a_bar_made_inside_is_seen_whoever_moves_it(every_report: None) -> None:
    seen: list[Progress] = []
    with observe(seen.append):
        bar = progress(None, what="train", unit="update")
        mover = threading.Thread(target=bar.to, args=(7,))
        mover.start()
        mover.join()
        bar.close()
    assert [report.n for report in seen] == [7, 7]


def test_observers_see_the_work_inside_only(every_report: None) -> None:
    outer: list[Progress] = []
    inner: list[Progress] = []
    with observe(outer.append):
        with observe(inner.append), progress(1, what="one", unit="step"):
            pass
        with progress(1, what="two", unit="step"):
            pass
    with progress(1, what="three", unit="step"):
        pass
    assert [report.what for report in inner] == ["one"]
    assert [report.what for report in outer] == ["one", "two"]


def test_notes_stay_until_others_of_their_name_come(every_report: None) -> None:
    seen: list[Progress] = []
    with observe(seen.append), progress(2, what="train", unit="update") as bar:
        bar.note(loss=3.0, mean_return=1.0)
        bar.to(1)
        bar.note(loss=2.0)
        bar.to(2)
    assert [report.notes for report in seen[:2]] == [{"loss": 3.0, "mean_return": 1.0}, {"loss": 2.0, "mean_return": 1.0}]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_a_bar_until_the_work_is_done_and_a_file_stays_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (terminal := Terminal(), file := io.StringIO()):
        monkeypatch.setattr("sys.stderr", stream)
        with progress(4, what="record", unit="episode") as bar:
            bar.note(mean_return=2.5)
            bar.to(4)
    assert "record:   0%" in terminal.getvalue() and "mean_return=2.5" in terminal.getvalue()
    assert not terminal.getvalue().rpartition("\r")[0].rpartition("\r")[2].strip()
    assert file.getvalue() == ""
