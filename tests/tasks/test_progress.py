"""What people see of a long stage: an artifact that moves, lines in the log; and that a server that is gone stops nothing."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest

from offline_core.runtime.progress import Progress, observe, progress
from tasks import progress as module
from tasks.progress import progress_shown


class Server:
    """Takes artifacts as Prefect's server does."""

    def __init__(self) -> None:
        self.told: dict[UUID, list[tuple[float, str]]] = {}
        self.is_gone = False

    def create(self, *, progress: float, description: str) -> UUID:
        if self.is_gone:
            raise ConnectionError("nobody there")
        identity = uuid4()
        self.told[identity] = [(progress, description)]
        return identity

    def update(self, identity: UUID, *, progress: float, description: str) -> None:
        if self.is_gone:
            raise ConnectionError("nobody there")
        self.told[identity].append((progress, description))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """All work counts as long, and each report is told."""
    server = Server()
    monkeypatch.setattr(module, "create_progress_artifact", server.create)
    monkeypatch.setattr(module, "update_progress_artifact", server.update)
    monkeypatch.setattr("offline_core.runtime.progress.LONG_SECONDS", 0.0)
    monkeypatch.setattr("offline_core.runtime.progress.SECONDS_BETWEEN_REPORTS", 0.0)
    return server


def test_each_piece_of_work_has_an_artifact_that_ends_at_its_end(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "offline_core"), progress_shown():
        for what in ("load", "train", "train"):
            with progress(4, what=what, unit="step") as bar:
                bar.to(2)
                bar.to(4)
    assert len(server.told) == 3
    for states in server.told.values():
        assert states[-1][0] == 100.0
        assert states[-1][1].partition(":")[2].startswith(" 4 steps in ")
    assert [message for message in caplog.messages if message.startswith("load: 4 steps in ")]


@pytest.mark.filterwarnings("default")
def test_work_that_ends_before_its_maximum_is_done_and_work_that_fails_is_not(server: Server) -> None:
    with progress_shown():
        with progress(100, what="train", unit="update") as bar:
            bar.to(6)
        with pytest.raises(KeyError), progress(100, what="load", unit="step") as bar:
            bar.to(6)
            raise KeyError
    assert [states[-1][0] for states in server.told.values()] == [100.0, 6.0]


def test_what_ends_when_nobody_watches_any_more_tells_nobody(server: Server) -> None:
    """As the bar of a generator does that an error's traceback has held until now."""

    def working() -> Iterator[None]:
        with progress(4, what="load", unit="step") as bar:
            bar.to(2)
            yield

    with progress_shown():
        work = working()
        next(work)
    told = [*server.told.values()]
    work.close()
    assert [*server.told.values()] == told


def test_the_longer_work_takes_the_rarer_the_server_is_told(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offline_core.runtime.progress.LONG_SECONDS", 10.0)
    clock = itertools.count()
    monkeypatch.setattr("offline_core.runtime.progress.time.monotonic", lambda: float(next(clock)))
    with progress_shown(), progress(3_600, what="train", unit="step") as bar:
        for done in range(3_600):
            bar.to(done)
    [states] = server.told.values()
    assert 2 <= len(states) <= 32, "fewer where the server is slow: what it misses is not told later"
    assert " steps in " in states[-1][1]


def test_short_work_leaves_nothing(monkeypatch: pytest.MonkeyPatch, server: Server, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("offline_core.runtime.progress.LONG_SECONDS", 10.0)
    with caplog.at_level(logging.INFO, "offline_core"), progress_shown(), progress(4, what="load", unit="step") as bar:
        bar.to(4)
    assert not server.told and not caplog.messages


def test_work_that_stops_half_way_stays_half_way(server: Server) -> None:
    with pytest.raises(KeyError), progress_shown(), progress(4, what="load", unit="step") as bar:
        bar.to(2)
        raise KeyError
    [states] = server.told.values()
    assert states[-1][0] == 50.0 and "2 of 4 steps when it stopped, after" in states[-1][1]


def test_a_total_that_nobody_knows_is_all_at_the_end(server: Server) -> None:
    with progress_shown(), progress(None, what="check", unit="step") as bar:
        bar.to(7)
    [states] = server.told.values()
    assert states[-1][0] == 100.0 and "7 steps" in states[-1][1]


def test_a_server_that_is_gone_stops_nothing(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Progress] = []
    server.is_gone = True
    with observe(seen.append), progress_shown(), progress(4, what="load", unit="step") as bar:
        bar.to(4)
    assert seen[-1].ended
    assert "Prefect's server could not be told of the progress: nobody there" in caplog.text
