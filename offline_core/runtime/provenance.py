"""Versions of the code and of the libraries that made a result, and the run of an orchestrator in which it was made."""

from __future__ import annotations

import contextlib
import functools
import getpass
import importlib.metadata
import os
import platform
import socket
import subprocess
from collections.abc import Iterator
from contextvars import ContextVar

RUN = "run"
_LIBRARIES = ("gymnasium", "numpy", "pyarrow", "ray", "torch")
_run: ContextVar[str | None] = ContextVar("run", default=None)


def provenance() -> dict[str, str]:
    """Return versions by name.

    `git` is the revision of this package's checkout (`+dirty` if changed), or `OFFLINE_COMMIT` where there is none. Inside
    `made_in_run` also the id of the run, as `RUN`.
    """
    run = _run.get()
    return _versions() | ({RUN: run} if run else {})


@contextlib.contextmanager
def made_in_run(run: str | None) -> Iterator[None]:
    """What is made inside the block names this run; None: it names none."""
    token = _run.set(run)
    try:
        yield
    finally:
        _run.reset(token)


def this_user() -> str:
    """`user@host` of this process."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run as a number without a name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"[:200]


@functools.cache
def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version(), "offline-rl-pipeline": _version("offline-rl-pipeline")}
    versions |= {name: _version(name) for name in _LIBRARIES}
    revision = _git_revision() or os.environ.get("OFFLINE_COMMIT")  # of an image, which has no checkout
    return versions | ({"git": revision} if revision else {})


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _git_revision() -> str | None:
    command = ["git", "-C", os.path.dirname(__file__), "describe", "--always", "--dirty=+dirty", "--abbrev=12", "--exclude=*"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() or None
