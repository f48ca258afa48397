"""Runs one hostile input after the other in a process of its own and says what each of them did.

    python -m tests.hostile.watched <folder> <module>…    # each module has `inputs(folder) -> dict[name, call]`

Watched are a file outside, addresses looked up and connected to, processes started, modules named `hostile_code`, seconds, and
memory. Errors of our tree and results are both fine.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import resource
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import Any

SECRET = "canary-5f3c9"
LIMIT_BYTES = 1024**3
LIMIT_SECONDS = 30
"""Of this process on a CPU, not of a clock: others may use the machine."""
_REQUESTS = (
    "socket.connect",
    "socket.getaddrinfo",
    "socket.gethostbyname",
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.fork",
)
happened: list[str] = []


def _watch() -> None:
    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _REQUESTS:
            happened.append(f"{event} {arguments[:2]}")
        elif event == "import" and "hostile_code" in str(arguments[0]):
            happened.append(f"import {arguments[0]}")

    sys.addaudithook(hook)


def _opened(outside: Path) -> int:
    """Can be read once a file there was opened, by whatever library: `inotify`, as Rust and C tell Python nothing."""
    libc = ctypes.CDLL(None, use_errno=True)
    watch = int(libc.inotify_init1(os.O_NONBLOCK))
    assert libc.inotify_add_watch(watch, os.fsencode(outside / "canary"), 0x21) >= 0  # IN_ACCESS | IN_OPEN
    return watch


def _server(root: Path) -> socket.socket:
    """Listens at the port that hostile inputs name."""
    server = socket.create_server(("127.0.0.1", int((root / "port").read_text())))
    server.setblocking(False)
    return server


def _choose_port(root: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        (root / "port").write_text(str(server.getsockname()[1]))


def _too_long(*_: object) -> None:
    raise TimeoutError(f"more than {LIMIT_SECONDS} s of a CPU")


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _told(module: str, root: Path) -> dict[str, Any]:
    """What each input of the module did."""
    from offline_core.errors import OfflineError

    outside = root / "outside"
    outside.mkdir(parents=True)
    (outside / "canary").write_text(f"{SECRET},b\n{SECRET},2\n")
    (root / "hostile_code.py").write_text(f"open({str(root / 'ran')!r}, 'w')\n")
    sys.path.insert(0, str(root))
    _choose_port(root)
    inputs = importlib.import_module(f"tests.hostile.{module}").inputs(root)
    before = _peak()
    opened, server = _opened(outside), _server(root)
    told = {}
    for name, call in inputs.items():
        happened.clear()
        start, answer = time.process_time(), "a result"
        signal.setitimer(signal.ITIMER_PROF, LIMIT_SECONDS)
        try:
            repr(call())
        except OfflineError as error:
            answer = type(error).__name__
            if SECRET in str(error):
                happened.append(f"told {error}")
        except BaseException as error:
            happened.append("".join(traceback.format_exception(error)[-3:])[-800:])
        signal.setitimer(signal.ITIMER_PROF, 0)
        with contextlib.suppress(BlockingIOError):
            os.read(opened, 65536)
            happened.append("opened a file outside")
        with contextlib.suppress(BlockingIOError):
            server.accept()
            happened.append("asked the server")
        seconds = time.process_time() - start
        if seconds > LIMIT_SECONDS:
            happened.append(f"took {seconds:.1f} s")
        if (root / "ran").exists():
            happened.append("ran code")
        if _peak() - before > LIMIT_BYTES:
            happened.append(f"memory {_peak() - before:,}")
            before = _peak()
        told[name] = {"answer": answer, "happened": list(happened), "seconds": round(seconds, 2)}
    sys.path.remove(str(root))
    server.close()
    return told


def main(folder: str, *modules: str) -> None:
    signal.signal(signal.SIGPROF, _too_long)
    _watch()
    print("TOLD", json.dumps({module: _told(module, Path(folder) / module) for module in modules}))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
