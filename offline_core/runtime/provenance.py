"""Versions of the code and of the libraries that made a result."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import subprocess

_LIBRARIES = ("gymnasium", "numpy", "pyarrow", "ray", "torch")


@functools.cache
def provenance() -> dict[str, str]:
    """Return versions by name; `git`, the revision of this package's checkout (`+dirty` if changed), only inside one."""
    versions = {"python": platform.python_version(), "offline-rl-pipeline": _version("offline-rl-pipeline")}
    versions |= {name: _version(name) for name in _LIBRARIES}
    revision = _git_revision()
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
