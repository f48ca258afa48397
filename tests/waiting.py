"""Waiting for events, for as long as a machine with much else to do may take."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import psutil

T = TypeVar("T")

PATIENCE_SECONDS = 600.0
"""No bound that a test checks: the end of a wait for an event that never comes."""


def wait_until(ask: Callable[[], T | None], *, seconds: float = PATIENCE_SECONDS, what: str) -> T:
    """The first answer that is true.

    Raises:
        TimeoutError: there was none in time; says what was waited for.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if answer := ask():
            return answer
        time.sleep(0.1)
    raise TimeoutError(f"After {seconds:.0f} s still waiting for {what}.")


def is_over(pid: int) -> bool:
    """Whether a process ended: it is gone, or a zombie whose end is not asked for, as in a container without an init."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
