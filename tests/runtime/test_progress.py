"""How far a piece of work is: counted without a terminal, told at the pace asked for, seen from other threads."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
import threading

import pytest

from offline_core.runtime import progress as module
from offline_core.runtime.progress import Progress, observe, part_of_work, progress


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


def test_work_inside_a_part_is_told_as_of_it() -> None:
    seen: list[Progress] = []
    with observe(seen.append), part_of_work("clone of what acted"), progress(3, what="train", unit="update") as bar:
        bar.update(3)
    with observe(seen.append), progress(3, what="weigh", unit="step"):
        pass
    assert [report.what for report in seen] == ["clone of what acted, train", "weigh"]


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
    assert str(Progress("read", "file", n=3, total=3, seconds=300.0, ended=True)) == "read: 3 files in 5 min, 0.01 a second"
    assert str(Progress("read", "file", n=1, total=1, seconds=1.0, ended=True)) == "read: 1 file in 1.0 s, 1 a second"
    failed = Progress("read", "file", n=2, total=3, seconds=9000.0, ended=True, failed=True)
    assert str(failed).startswith("read: 2 of 3 files when it stopped, after 2.5 h")


def test_work_that_ended_early_because_it_was_done_says_what_it_came_to_and_not_a_share_of_the_maximum() -> None:
    reached = Progress("train", "update", n=200, total=3620, seconds=10.0, notes={"mean_return": 495.0}, ended=True)
    assert str(reached) == "train: 200 updates in 10 s, 20 a second, mean return 495" and reached.percent == 100.0
    running = Progress("train", "update", n=181, total=3620, seconds=10.0)
    assert running.percent == 5.0 and Progress("train", "update", n=1, total=None, seconds=1.0).percent == 0.0


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


@pytest.mark.parametrize("fails", [False, True])
def test_a_line_stays_where_the_bar_of_longer_work_was(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS_WORTH_A_LINE", 0.0)
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    with contextlib.suppress(KeyError), progress(100, what="train", unit="update") as bar:
        bar.to(6)
        if fails:
            raise KeyError
    bar.close()
    told = "train: 6 of 100 updates when it stopped, after" if fails else "train: 6 updates in"
    assert terminal.getvalue().splitlines()[-1].startswith(told) and terminal.getvalue().count(told) == 1


@pytest.mark.parametrize(("widget", "bar"), [("object", "tqdm_notebook"), ("None", "tqdm")])
def test_a_notebook_shows_bars_of_its_own(widget: str, bar: str) -> None:
    """Its kernel has loaded ipykernel before; its widgets need ipywidgets, without which bars are text."""
    code = (
        "import sys, types, IPython, ipykernel.zmqshell; "
        f"notebook = types.ModuleType('tqdm.notebook'); notebook.WARN_NOIPYW, notebook.IProgress = 'none', {widget}; "
        "notebook.tqdm = notebook.trange = type('tqdm_notebook', (), {}); sys.modules['tqdm.notebook'] = notebook; "
        "IPython.get_ipython = lambda: None; from offline_core.runtime import progress; print(progress.tqdm.__name__)"
    )
    done = subprocess.run([sys.executable, "-W", "default", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == bar and "Tqdm" not in done.stderr
