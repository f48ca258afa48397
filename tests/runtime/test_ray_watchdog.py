"""The watch over Ray's own process: what it does without the system's help, and that a loss is told once."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest

from offline_core.errors import RayLostError
from offline_core.runtime import ray_watchdog
from offline_core.runtime.ray_watchdog import WAKING, terminable, watch_raylet
from tests.waiting import wait_until


@pytest.fixture
def raylet() -> Iterator[subprocess.Popen[bytes]]:
    """A process to watch."""
    with subprocess.Popen(["sleep", "3600"]) as process:
        yield process
        process.kill()


def lose(raylet: subprocess.Popen[bytes]) -> None:
    with pytest.raises(RayLostError, match=rf"raylet, {raylet.pid}\) died"), watch_raylet(raylet.pid), terminable():
        raylet.kill()
        time.sleep(3600)  # interrupted


def test_a_lost_ray_is_told_once(raylet: subprocess.Popen[bytes]) -> None:
    lose(raylet)
    with terminable():  # a session in a Ray that somebody else has started
        pass


def test_a_signal_that_came_too_early_is_sent_again(raylet: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_watchdog, "SECONDS_BETWEEN_SIGNALS", 0.01)
    sent: list[int] = []

    def send(*arguments: int) -> None:
        sent.append(1)
        if len(sent) > 1:
            pthread_kill(*arguments)

    pthread_kill = signal.pthread_kill
    monkeypatch.setattr(signal, "pthread_kill", send)
    lose(raylet)
    assert len(sent) > 1


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM])
def test_without_handles_of_processes_a_session_is_not_watched(
    number: int, raylet: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(pid: int) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pidfd_open", refuse)
    before = signal.getsignal(signal.SIGURG)
    with watch_raylet(raylet.pid), terminable():
        assert signal.getsignal(signal.SIGURG) == before


def test_a_ray_that_is_dead_before_it_is_watched_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def search(pid: int) -> int:
        raise OSError(errno.ESRCH, os.strerror(errno.ESRCH))

    monkeypatch.setattr(os, "pidfd_open", search)
    with pytest.raises(RayLostError, match=r"raylet, 123456\) died"), watch_raylet(123456):
        pass


def test_of_a_run_that_is_cancelled_the_death_of_ray_is_no_news(raylet: subprocess.Popen[bytes]) -> None:
    """Runners end all processes of a run at once; both signals are there when the first is handled."""

    class CancelledError(BaseException):
        pass

    def cancel(*_: object) -> None:
        raise CancelledError

    before, signals = signal.signal(signal.SIGTERM, cancel), {signal.SIGTERM, WAKING}
    try:
        with pytest.raises(CancelledError), watch_raylet(raylet.pid), terminable():
            signal.pthread_sigmask(signal.SIG_BLOCK, signals)
            raylet.kill()
            wait_until(lambda: WAKING in signal.sigpending(), what="the watch")
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
            time.sleep(3600)  # interrupted
    finally:
        signal.signal(signal.SIGTERM, before)
