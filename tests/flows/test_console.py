"""What the terminal of a command shows of the log."""

from __future__ import annotations

import logging

import pytest

from flows.console import ConsoleHandler


@pytest.mark.parametrize(
    ("logger", "level", "message", "shown"),
    [
        ("prefect.flow_runs", logging.INFO, "Beginning flow run %r", ""),
        ("prefect.flow_runs", logging.ERROR, "Finished in state Failed()", ""),
        ("prefect.flow_runs", logging.ERROR, "Encountered exception during execution: %r", ""),
        ("prefect.flow_runs", logging.INFO, "View at http://127.0.0.1:4200/runs", "View at http://127.0.0.1:4200/runs"),
        (
            "prefect",
            logging.INFO,
            "Starting temporary server on http://127.0.0.1:8000\nSee https://docs",
            "Starting temporary ",
        ),
        (
            "prefect.task_runs",
            logging.INFO,
            "Task run failed with %r - Retry 1/2",
            "Task run failed with KeyError('x') - Retry",
        ),
        ("prefect.client", logging.WARNING, "The server is slow: %r", "WARNING: The server is slow: KeyError('x')"),
        ("offline_core.chain", logging.INFO, "train expert …", "train expert …"),
        ("offline_core.data.datasets.new_version", logging.INFO, "prune: version 1", ""),
        ("offline_core.runtime.stage", logging.WARNING, "which stands on the card", ""),
    ],
)
def test_a_line_for_what_begins_and_none_for_what_the_card_or_the_end_says(
    logger: str, level: int, message: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = (KeyError("x"),) if "%r" in message else ()
    ConsoleHandler(styles={}).handle(logging.LogRecord(logger, level, __file__, 1, message, arguments, None))
    told = capsys.readouterr().err
    assert told.startswith(shown) and told.count("\n") == bool(shown)
