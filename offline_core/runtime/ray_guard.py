"""What a local Ray leaves when its run is killed ends with the run.

Linux ends Ray's process on this machine, the raylet, with the process that started it, and workers with it. Ray's two agents
notice at once as well. But before they end they report it to Ray's control process, which is gone, and wait a minute for an
answer; no setting shortens that. So a small process of its own waits for the end of the run, and then ends the agents.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import psutil

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
