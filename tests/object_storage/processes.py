"""Processes that answer line by line, so that several of them can begin something at the same time."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

from tests.e2e.orchestra import REPOSITORY


class Talker:
    """A process that runs a script with these arguments."""

    def __init__(self, script: str, *arguments: object) -> None:
        command = [sys.executable, "-c", script, *map(str, arguments)]
        self.process = subprocess.Popen(command, cwd=REPOSITORY, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def say(self, line: str = "go") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, line: str = "go") -> str:
        self.say(line)
        return self.hear()


@contextlib.contextmanager
def talking(script: str, *arguments: tuple[object, ...]) -> Iterator[list[Talker]]:
    """A process for each tuple of arguments, all ready: each has said so."""
    talkers = [Talker(script, *each) for each in arguments]
    try:
        assert [each.hear() for each in talkers] == ["ready"] * len(talkers)
        yield talkers
    finally:
        for each in talkers:
            each.process.kill()
            each.process.communicate()


def answers(talkers: list[Talker], line: str = "go", *, first: int = 0) -> list[str]:
    """All are asked, from number `first` on, before any answer is awaited."""
    for number in range(len(talkers)):
        talkers[(first + number) % len(talkers)].say(line)
    return [each.hear() for each in talkers]
