"""What ends a run while it waits for Ray: SIGTERM, and the death of Ray's own process on this machine (the raylet)."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from offline_core.errors import RayLostError

WAKING = signal.SIGURG
"""What the watch sends to the main thread: Python ignores it by default, and Ray and Prefect do not use it."""

LOST = (
    "Ray's process on this machine (raylet, {pid}) died: it was killed, or the machine ran out of memory. Run the same again: "
    "what was finished is found, and a training goes on from its last state."
)

_lost: str | None = None
"""Why the Ray of this process is gone, until its session ends; the watch sets it before it interrupts the main thread."""


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Inside, SIGTERM interrupts Ray's waits. The handler from before is called when the block has ended.

    Ray's C++ code lets nothing but KeyboardInterrupt out of its waits: it drops whatever else a handler raises, and waits on.
    It also puts a handler of its own in front, which prints a stack trace; to set one here removes it.

    Raises:
        RayLostError: Ray's process on this machine has died inside the block.
    """
    previous = signal.getsignal(signal.SIGTERM)
    if previous is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal arrived
        arrived = True
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
        if _lost is not None:
            raise RayLostError(_lost) from None


@contextlib.contextmanager
def watched(raylet: int | None) -> Iterator[None]:
    """Interrupts the main thread when the process `raylet` dies inside the block.

    Ray itself finds out after some 15 s, and ends this process without a word.

    Raises:
        RayLostError: it died, and no `terminable` block inside has said so; or it was dead before.
    """
    global _lost
    is_main = threading.current_thread() is threading.main_thread()
    if raylet is None or not is_main or (process := _handle(raylet)) is None:
        yield
        return
    ended, end = os.pipe()

    def watch() -> None:
        global _lost
        ready, _, _ = select.select([process, ended], [], [])
        if ended not in ready:
            _lost = LOST.format(pid=raylet)
            main = threading.main_thread().ident
            assert main is not None
            signal.pthread_kill(main, WAKING)

    watcher = threading.Thread(target=watch, name="raylet watch", daemon=True)
    before = signal.signal(WAKING, _interrupt)
    watcher.start()
    try:
        yield
    except KeyboardInterrupt:
        if _lost is not None:
            raise RayLostError(_lost) from None
        raise
    finally:
        signal.signal(WAKING, before)
        os.close(end)
        watcher.join()
        os.close(ended)
        os.close(process)
        _lost = None  # only now: blocks inside had to see it, and the next session's Ray is another one


def _handle(raylet: int) -> int | None:
    """What tells of the process's end; None where the system has none (an old kernel, a sandbox).

    Raises:
        RayLostError: there is no such process any more.
    """
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(raylet)
    except ProcessLookupError:
        raise RayLostError(LOST.format(pid=raylet)) from None
    except OSError:
        return None
