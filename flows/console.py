"""Prefect's log lines on the terminal of a command: beside its progress bars, and without what the command says at its end."""

from __future__ import annotations

import logging

from prefect.logging.handlers import PrefectConsoleHandler
from tqdm import tqdm

AT_THE_END = (
    "Encountered exception during execution",
    "Crash detected!",
    "Stopping temporary server",
    "Still processing items",
)
"""How lines begin that tell what ended a flow run, or come after: what the command itself says of it comes last."""


class ConsoleHandler(PrefectConsoleHandler):
    """Prefect's own, which takes the bars away for the moment in which it writes."""

    def emit(self, record: logging.LogRecord) -> None:
        if not str(record.msg).startswith(AT_THE_END):
            with tqdm.external_write_mode(file=self.stream):
                super().emit(record)
