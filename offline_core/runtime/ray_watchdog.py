"""What happens when a run or the Ray that it started ends before the other.

A run that waits for Ray is interrupted by SIGTERM, and by the death of Ray's process on this machine, the raylet.

What a local Ray leaves when its run is killed ends with the run. Linux ends the raylet with the process that started it, and
workers with it. Ray's two agents notice at once as well. But before they end they report it to Ray's control process, which is
gone, and wait a minute for an answer; no setting shortens that. So a small process of its own waits for the end of the run, and
then ends the agents.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import FrameType

import psutil

from offline_core.errors import RayLostError

WAKING = getattr(signal, "SIGURG", signal.SIGTERM)  # Windows has none, and no watch either
"""The signal from the watch to the main thread: Python ignores it by default, and Ray and Prefect do not use it."""

LOST = (
    "Ray's process on this machine (raylet, {pid}) died: it was killed, or the machine ran out of memory. Run the same again: "
    "finished results are reused, and a training resumes from its last state."
)

_lost: str | None = None
"""Why the raylet died, until its session ends; the watch sets it before it interrupts the main thread."""

_told = False
"""The main thread has handled the signal of the watch."""

SECONDS_BETWEEN_SIGNALS = 1.0
"""A signal that arrives just before the main thread enters a system call is handled after it, which may be never."""

_terminated = False
"""SIGTERM arrived. Who cancels a run sends it to all its processes, so that Ray's death is no news, and interrupts nothing."""


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _told
    _told = True
    if not _terminated:
        raise KeyboardInterrupt


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM interrupt Ray's waits inside the block; the previous handler runs after it.

    Only KeyboardInterrupt leaves the waits of Ray's C++ code: it drops other exceptions of handlers, and waits on. Ray also
    installs a handler that prints a stack trace; this one replaces it.

    Raises:
        RayLostError: Ray's process on this machine died inside the block.
    """
    previous = signal.getsignal(signal.SIGTERM)
    if previous is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        global _terminated
        nonlocal arrived
        arrived = _terminated = True
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
        if arrived and callable(previous):
            previous(signal.SIGTERM, None)
        elif arrived and previous == signal.SIG_DFL:
            os.kill(os.getpid(), signal.SIGTERM)
        if _lost is not None and not arrived:
            raise RayLostError(_lost) from None


@contextlib.contextmanager
def watch_raylet(raylet: int | None) -> Iterator[None]:
    """Interrupt the main thread when the process `raylet` dies inside the block.

    Ray itself notices after some 15 s, and ends this process without a message.

    Raises:
        RayLostError: it died, now or before.
    """
    global _lost, _terminated, _told
    is_main = threading.current_thread() is threading.main_thread()
    if raylet is None or not is_main or (process := _handle(raylet)) is None:
        yield
        return
    _terminated = _told = False
    ended, end = os.pipe()

    def watch() -> None:
        global _lost
        ready, _, _ = select.select([process, ended], [], [])
        if ended not in ready:
            _lost = LOST.format(pid=raylet)
            main = threading.main_thread().ident
            assert main is not None
            while not _told:
                signal.pthread_kill(main, WAKING)
                if select.select([ended], [], [], SECONDS_BETWEEN_SIGNALS)[0]:
                    break

    watcher = threading.Thread(target=watch, name="raylet watch", daemon=True)
    before = signal.signal(WAKING, _interrupt)
    watcher.start()
    try:
        yield
    except KeyboardInterrupt:
        if _lost is not None and not _terminated:
            raise RayLostError(_lost) from None
        raise
    finally:
        signal.signal(WAKING, before)
        os.close(end)
        watcher.join()
        os.close(ended)
        os.close(process)
        _lost = None  # only now: blocks inside read it, and the next session has another Ray


def _handle(raylet: int) -> int | None:
    """Return a file descriptor that reports the end of the process; None if the system has none (an old kernel, a sandbox).

    Raises:
        RayLostError: the process has ended.
    """
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(raylet)
    except ProcessLookupError:
        raise RayLostError(LOST.format(pid=raylet)) from None
    except OSError:
        return None


_WAITING = """
import contextlib, os, signal, sys

def start(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[19]

pids = sys.argv[1:]
known = {}
for pid in pids:
    with contextlib.suppress(OSError):
        known[pid] = start(pid)
sys.stdin.buffer.read()
for pid, began in known.items():
    with contextlib.suppress(OSError):
        if start(pid) == began:
            os.kill(int(pid), signal.SIGKILL)
"""
"""Reads until the other end of its input closes, which only the run holds. A number may be another process by then."""


@contextlib.contextmanager
def children_ended_with_this_process(raylet: int | None) -> Iterator[None]:
    """End the processes that a raylet has started by now when this process ends inside the block, however it ends.

    Arguments:
        raylet: of a Ray that this process started; None: nothing is ended.
    """
    guard = None
    if raylet is not None and sys.platform == "linux":
        with contextlib.suppress(OSError, psutil.Error):  # Ray ends by itself, a minute later
            agents = [str(child.pid) for child in psutil.Process(raylet).children()]
            command = [sys.executable, "-I", "-S", "-c", _WAITING, *agents]
            # In a session of its own: what a terminal or Prefect sends to all processes of the run is not for it.
            guard = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    try:
        yield
    finally:
        if guard is not None:
            guard.communicate()
