"""Ends a command in order when it is told to stop by SIGTERM or SIGINT (Ctrl-C), and at once when it is told again."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from types import FrameType

import psutil

STOPS = (signal.SIGINT, signal.SIGTERM)
SENTENCE = "Stopped by {name}. Run the same again: what was finished is found, and a training goes on from its last state."
AT_ONCE = "Stopped at once, {why}. Where a Prefect server shows the run as Running, cancel it there."
ORDERLY_SECONDS = 12.0
"""What takes longer to end is ended at once. Prefect would ask a server that is gone for minutes."""
HANDLED_SECONDS = 0.3
"""Prefect sends the process the same signal again when it has marked the run; then `_exit` is called within that time."""


LOST = 255
"""No signal: what one raised was lost."""
RETURNED_SECONDS = 0.05
"""Seconds in which the callback that lost it has to return."""


class Stopping:
    """The first signal raises in the main thread, as Prefect and Python do it; this notes which it was."""

    def __init__(self) -> None:
        self._seen: signal.Signals | None = None
        """The signal that the watching thread saw, which may be later than what a signal raises."""
        self._raised: signal.Signals | None = None
        """The signal that raised in the main thread."""
        self._exiting = threading.Event()
        self._lost: int = signal.SIGTERM
        """The signal that is to come again, for what it raised was lost."""
        self._tell_unraisable, sys.unraisablehook = sys.unraisablehook, self._unraisable
        told, self._tell = socket.socketpair()
        self._tell.setblocking(False)
        signal.set_wakeup_fd(self._tell.fileno(), warn_on_full_buffer=False)  # whichever handler is set, Prefect's as well
        if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._exit)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._interrupt)
        threading.Thread(target=self._watch, args=(told,), name="stopping", daemon=True).start()

    @property
    def signal(self) -> signal.Signals | None:
        """The signal that told the process to stop first, if any did."""
        return self._seen or self._raised

    @property
    def sentence(self) -> str:
        """What people read when it has ended in order."""
        assert self.signal is not None
        return SENTENCE.format(name=self.signal.name)

    @property
    def code(self) -> int:
        """The exit code of a process that a signal ended, as shells have it."""
        assert self.signal is not None
        return 128 + self.signal

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._raised = self._raised or signal.SIGINT  # now, and not when the watch gets to it
        signal.default_int_handler(number, frame)

    def _exit(self, number: int, frame: FrameType | None) -> None:
        """Called for a first SIGTERM, or for the same one that Prefect sends again; any other call is a second signal."""
        if self._exiting.is_set() or self.signal not in (None, number):
            end_at_once(128 + (self.signal or number), AT_ONCE.format(why="by a second signal"))
        self._raised = signal.Signals(number)
        self._exiting.set()
        raise SystemExit(128 + number)

    def _unraisable(self, lost: sys.UnraisableHookArgs) -> None:
        """Send the signal again where it raised inside a callback of the garbage collector, from which nothing is raised."""
        number = getattr(lost.exc_value, "signal", None)  # as Prefect's has it
        if self.signal is not None and not issubclass(lost.exc_type, Exception):
            number = self.signal
        elif issubclass(lost.exc_type, KeyboardInterrupt):
            number = signal.SIGINT
        if number not in STOPS or threading.current_thread() is not threading.main_thread():
            self._tell_unraisable(lost)
            return
        self._lost = number
        self._exiting.clear()
        self._tell.send(bytes([LOST]))

    def _watch(self, told: socket.socket) -> None:
        to_come = 0
        while number := told.recv(1):
            if number[0] == LOST:
                to_come += 1
                time.sleep(RETURNED_SECONDS)
                os.kill(os.getpid(), self._lost)
            if number[0] not in STOPS:
                continue
            if self._seen is None:
                self._seen = signal.Signals(number[0])
                threading.Thread(target=self._limit, name="stopping limit", daemon=True).start()
                to_come = 0
            elif to_come:
                to_come -= 1
            elif not self._exiting.wait(HANDLED_SECONDS):
                end_at_once(self.code, AT_ONCE.format(why="by a second signal"))

    def _limit(self) -> None:
        time.sleep(ORDERLY_SECONDS)
        end_at_once(self.code, AT_ONCE.format(why=f"for it did not end in order within {ORDERLY_SECONDS:.0f} s"))


def end_at_once(code: int, sentence: str) -> None:
    """Kills what this process started, says `sentence`, and ends it."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            child.kill()
    with contextlib.suppress(OSError):  # not by sys.stderr, which a signal may have interrupted as it wrote
        os.write(2, f"\n{sentence}\n".encode())
    os._exit(code)
