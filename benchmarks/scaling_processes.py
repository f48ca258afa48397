"""A command and all processes it starts: what it printed, and the memory they had together when they had most."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

SECONDS_BETWEEN_LOOKS = 0.3


@dataclass(slots=True)
class Peak:
    """Proportional set sizes (PSS): each page counts once, shared ones in parts. Linux; taken every 0.3 s."""

    bytes: int = 0
    """All processes together: the training one, Ray's own, its workers, and what they use of the object store."""
    process_bytes: int = 0
    """The first process alone."""
    nodes_with_learners: int = 0
    """Ray nodes that had learners on them at once."""

    def look(self, first: psutil.Process) -> list[psutil.Process]:
        """Takes the present into account; the processes that there are."""
        tree = [first]
        with contextlib.suppress(psutil.Error):
            tree += first.children(recursive=True)
        sizes = [_bytes(process) for process in tree]
        self.bytes, self.process_bytes = max(self.bytes, sum(sizes)), max(self.process_bytes, sizes[0])
        self.nodes_with_learners = max(self.nodes_with_learners, len({_parent(p) for p in tree if _learns(p)}))
        return tree


def measured(command: Sequence[str], *, limit_seconds: float) -> tuple[str | None, Peak]:
    """(what it printed, memory) of a command that ends well; None instead of the print if the limit came first.

    Raises:
        RuntimeError: it failed; with the end of what it said.
    """
    peak, tree, deadline = Peak(), [], time.monotonic() + limit_seconds
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=output, stderr=errors, text=True)
        try:
            while process.poll() is None and time.monotonic() < deadline:
                tree = peak.look(psutil.Process(process.pid)) or tree
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(SECONDS_BETWEEN_LOOKS)
            if process.poll() is None:
                return None, peak
        finally:
            for one in tree:  # a stopped Ray leaves nobody; one that was cut short would
                with contextlib.suppress(psutil.Error):
                    one.kill()
            process.wait()
        output.seek(0)
        errors.seek(0)
        if process.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}:\n{errors.read()[-3000:]}")
        return output.read(), peak


def _bytes(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:  # it ended
        return 0


def _learns(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return "LearnerProcess" in " ".join(process.cmdline())
    return False


def _parent(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.Error):
        return int(process.ppid())
    return 0
