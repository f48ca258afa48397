"""What modules use while they are imported exists on Windows, too: no test here can run there."""

from __future__ import annotations

import ast
import signal
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
POSIX_MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
POSIX_NAMES = {
    "os": {"fork", "geteuid", "getuid", "getpgid", "killpg", "pidfd_open", "sched_getaffinity", "setsid", "sysconf", "uname"},
    "signal": {each.name for each in signal.Signals} - {"SIGABRT", "SIGFPE", "SIGILL", "SIGINT", "SIGSEGV", "SIGTERM"}
    | {"alarm", "pthread_kill", "setitimer", "sigwait"},
}


def executed(node: ast.AST) -> Iterator[ast.AST]:
    """What an import of the module runs: everything but the bodies of functions."""
    yield node
    for name, value in ast.iter_fields(node):
        if name == "body" and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.AST):
                yield from executed(each)


def posix_only(node: ast.AST) -> str | None:
    match node:
        case ast.Import(names=names) if found := {each.name.partition(".")[0] for each in names} & POSIX_MODULES:
            return found.pop()
        case ast.ImportFrom(module=str(name)) if name in POSIX_MODULES:
            return name
        case ast.Attribute(value=ast.Name(id=module), attr=name) if name in POSIX_NAMES.get(module, ()):
            return f"{module}.{name}"
    return None


def test_imports_need_no_posix() -> None:
    files = [file for folder in ("offline_core", "tasks", "flows", "deployments") for file in (ROOT / folder).rglob("*.py")]
    found = [
        f"{file.relative_to(ROOT)}: {name}"
        for file in files
        for node in executed(ast.parse(file.read_bytes()))
        if (name := posix_only(node))
    ]

    assert files and found == []
    assert not [file for file in files if "errno.EREMOTEIO" in file.read_text()], "macOS has none"
