"""Runs a stage in the process of its command, without Prefect: what a task and its flow do around a stage, and nothing more."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from typing import Any

from tqdm import tqdm

from flows.server_settings import ui_url
from flows.verbs import as_json, is_verbose
from offline_core.keeping.perform import perform
from offline_core.plans.permission import check_permitted
from offline_core.policies import manifest
from offline_core.runtime import progress, stage
from offline_core.runtime.ray_session import ray_scope
from offline_core.runtime.stage import Stage

TOLD = (progress.__name__, manifest.__name__)
"""Modules whose messages below warnings are shown: how far long work is, and which policy of a folder is taken."""


def run_in_process(entry: Stage[..., Any], **parameters: Any) -> Any:
    """The result of a stage; its log lines are shown on stderr, below a bar of its progress if that is a terminal.

    Raises:
        OfflineError: what is wrong is refused before anything starts.
    """
    with _log_shown():
        check_permitted(parameters)
        with ray_scope(), contextlib.nullcontext() if sys.stderr.isatty() else progress.progress_logged():
            return perform(entry, parameters.pop("config"), parameters, runs_url=ui_url())


class _Lines(logging.Handler):
    """Writes messages to stderr, with their level from warnings on. A bar of tqdm goes out of their way."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Not what the card says as well: what was made, and what the stage warns of."""
        is_on_card = record.name == stage.__name__ and not as_json()
        return is_verbose() or (record.levelno >= logging.WARNING and not is_on_card) or record.name in TOLD

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = self.format(record)
            tqdm.write(message if record.levelno < logging.WARNING else f"{record.levelname}: {message}", file=sys.stderr)
        except Exception:
            self.handleError(record)


@contextlib.contextmanager
def _log_shown() -> Iterator[None]:
    lines, root = _Lines(), logging.getLogger()
    root.addHandler(lines)
    try:
        yield
    finally:
        root.removeHandler(lines)
