"""Temporary names, which no reader looks at: each tells which process writes under it, so that a dead one's can be removed.

`.tmp-` and 32 hexadecimal digits: where the process runs, its number, when it began, and a random part. Processes of another
machine or container cannot be seen from here, and nothing is said of them.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import secrets
import socket
import uuid
from contextlib import suppress

TEMPORARY = ".tmp-"
"""How they begin: readers skip them, and a crash leaves nothing else behind."""
DIGITS = 32
_PLACE_DIGITS, _PROCESS_DIGITS, _START_DIGITS = 10, 6, 8
_START_OF_MACHINE = "/proc/sys/kernel/random/boot_id"
_PATTERN = re.compile(
    rf"{re.escape(TEMPORARY)}([0-9a-f]{{{_PLACE_DIGITS}}})([0-9a-f]{{{_PROCESS_DIGITS}}})([0-9a-f]{{{_START_DIGITS}}})[0-9a-f]+"
)


def temporary_name() -> str:
    """A new name for what this process writes."""
    own = _own_digits()
    return f"{TEMPORARY}{own}{secrets.token_hex(DIGITS)[: DIGITS - len(own)]}"


def is_of_other_living_process(name: str) -> bool:
    """Whether another process of this machine is known to write under a temporary name."""
    match = _PATTERN.fullmatch(name)
    is_here = match is not None and match[1] == _place() and not name.startswith(f"{TEMPORARY}{_own_digits()}")
    return is_here and not is_of_dead_process(name)


def is_of_dead_process(name: str) -> bool:
    """Whether the process that writes under a temporary name is known to be dead."""
    match = _PATTERN.fullmatch(name)
    if match is None or match[1] != _place():
        return False
    process, start = int(match[2], 16), int(match[3], 16)
    if not _exists(process):
        return True
    return start != 0 and _start(process) not in (None, start)  # another one has its number now


def _own_digits() -> str:
    process = os.getpid()
    return f"{_place()}{process:0{_PROCESS_DIGITS}x}{_start(process) or 0:0{_START_DIGITS}x}"


@functools.cache
def _place() -> str:
    """The machine since it started, and the container: what numbers of processes are unique in."""
    parts = [socket.gethostname()]
    try:
        with open(_START_OF_MACHINE) as file:
            parts.append(file.read().strip())
    except OSError:  # not Linux; two laptops may have the same name
        parts.append(f"{uuid.getnode():x}")
    with suppress(OSError, AttributeError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:_PLACE_DIGITS]


def _exists(process: int) -> bool:
    if os.name != "posix":  # where a signal 0 would end it
        import psutil

        return bool(psutil.pid_exists(process))
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # that of another user
        return True
    return process > 0 and not _is_zombie(process)


def _start(process: int) -> int | None:
    """When a process began, in ticks since the machine started; None where that cannot be read, as on macOS and Windows."""
    fields = _fields(process)
    return int(fields[19]) % 16**_START_DIGITS if len(fields) > 19 else None


def _is_zombie(process: int) -> bool:
    return _fields(process)[:1] == ["Z"]


def _fields(process: int) -> list[str]:
    """What Linux says of a process, from its state on; nothing elsewhere."""
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []
