"""Log lines and progress bars on one terminal: a line appears above the bar and does not break it."""

from __future__ import annotations

import logging

from prefect.logging.handlers import PrefectConsoleHandler
from tqdm import tqdm


class ConsoleHandler(PrefectConsoleHandler):
    """Prefect's own, which takes the bars away for the moment in which it writes."""

    def emit(self, record: logging.LogRecord) -> None:
        with tqdm.external_write_mode(file=self.stream):
            super().emit(record)
