"""What the terminal of a command shows of Prefect's log."""

from __future__ import annotations

import io
import logging

import pytest

from flows.console import ConsoleHandler


@pytest.mark.parametrize(
    ("message", "is_shown"),
    [
        ("Beginning flow run 'train' for flow 'train'", True),
        ("Finished in state Failed()", True),
        ("Encountered exception during execution: %r", False),
        ("Crash detected! Execution was aborted by a termination signal.", False),
        ("Stopping temporary server on http://127.0.0.1:8000", False),
    ],
)
def test_what_the_command_says_at_its_end_is_not_said_before(message: str, is_shown: bool) -> None:
    stream = io.StringIO()
    handler = ConsoleHandler(stream=stream)
    arguments = (KeyError("x"),) if "%r" in message else ()
    handler.emit(logging.LogRecord("prefect.flow_runs", logging.ERROR, __file__, 1, message, arguments, None))
    assert bool(stream.getvalue()) == is_shown
