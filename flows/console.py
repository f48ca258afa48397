"""The terminal of a command: what it says itself, and what it shows of the log while it works, beside its progress bars.

Control characters that names bring along are written out.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import click
from tqdm import tqdm

from flows.verbs import as_json, is_verbose
from offline_core.control_characters import visible

# Named by texts, for the temporary server imports this module, too.
TOLD = (
    "offline_core.chain",
    "offline_core.runtime.progress",
    "offline_core.policies.manifest",
    "offline_core.data.datasets.result_cache.replaced",
)
"""Loggers whose lines below warnings are shown: of the stages that begin, of long work, of the policy taken from a folder, of
a result that goes."""
STAGES = "offline_core.runtime.stage"
"""The logger of the warnings of stages."""
TOLD_BY_PREFECT = ("Starting temporary server", "View at", "Pausing flow", "Task run failed")
"""How the lines of Prefect begin that are: what is waited for, where to look, what is tried again."""
AT_THE_END = (
    "Encountered exception during execution",
    "Crash detected!",
    "Finished in state",
    "Stopping temporary server",
    "Error flushing",
    "Still processing items",
)
"""How lines begin that tell what ended a flow run, or come after: what the command itself says of it comes last."""


def say(text: str, *, err: bool = False, color: str | None = None, bold: bool | None = None) -> None:
    """Writes lines to stdout, or stderr; in a colour where that is a terminal."""
    click.secho(visible(text), err=err, fg=color, bold=bold)


class ConsoleHandler(logging.Handler):
    """Writes messages to stderr, with their level from warnings on. A bar of tqdm goes out of their way."""

    def __init__(self, **_of_prefects: Any) -> None:
        super().__init__()  # colours and a stream are given where Prefect makes it

    def filter(self, record: logging.LogRecord) -> bool:
        """Not what cards or the last line of the command say as well: what was made, what a stage warns of, what failed."""
        message = str(record.msg)
        if message.startswith(AT_THE_END):
            return False
        is_on_card = record.name == STAGES and not as_json()
        is_told = record.name in TOLD or message.startswith(TOLD_BY_PREFECT)
        return is_verbose() or is_told or (record.levelno >= logging.WARNING and not is_on_card)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = visible(_PLAIN.format(record))
            if record.name.startswith("prefect") and record.levelno < logging.WARNING:
                message = message.partition("\n")[0]  # without advice on servers
            tqdm.write(message if record.levelno < logging.WARNING else f"{record.levelname}: {message}", file=sys.stderr)
        except Exception:
            self.handleError(record)


_PLAIN = logging.Formatter()
