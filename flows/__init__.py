"""Prefect flows, one a file: they chain tasks and hold one Ray session around them, nothing else."""

import logging
import os
import re
import sys
import traceback
from typing import Any

from offline_core.errors import OfflineError
from offline_core.secrets import masked_text

# What pyproject.toml sets for runs inside the repository, for runs anywhere else. Nothing phones home.
for _variable, _value in {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "PREFECT_LOGGING_EXTRA_LOGGERS": "offline_core",
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    "PREFECT_LOGGING_TO_API_BATCH_INTERVAL": "5.0",
    "PREFECT_CLIENT_RETRY_JITTER_FACTOR": "1.0",
}.items():
    os.environ.setdefault(_variable, _value)

# Prefect hands on what our loggers let through, and the root lets little through.
logging.getLogger("offline_core").setLevel(logging.INFO)


_ENDED = re.compile(r"Finished in state (Failed|Crashed)")


def _told_once(record: logging.LogRecord) -> bool:
    """What ends a flow run is told by one line of it: not by its task before, nor by the states that both then have.

    Errors of the pipeline say what is wrong, and those of a server that it is gone: neither needs a traceback.
    """
    error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
    httpx = sys.modules.get("httpx")  # nothing is raised by it before it is imported
    is_readable = isinstance(error, OfflineError) or (httpx is not None and isinstance(error, httpx.TransportError))
    if is_readable:
        record.exc_info = record.exc_text = None
    if (state := _ENDED.match(str(record.msg))) is not None:
        record.msg, record.args = f"{state[0]}()", None
    is_of_task = record.name == "prefect.task_runs"
    return not (is_of_task and (is_readable or str(record.msg).startswith("Crash detected!")))


def _without_secrets(*args: Any, **kwargs: Any) -> logging.LogRecord:
    """Passwords stand in URLs that Prefect's client logs, and in what other people's code raises."""
    record = _make_record(*args, **kwargs)
    if isinstance(record.exc_info, tuple):
        trace = "".join(traceback.format_exception(*record.exc_info)).removesuffix("\n")
        if (told := masked_text(trace)) != trace:
            record.exc_text = told  # which formatters take in place of `exc_info`
    try:
        text = record.getMessage()
    except (TypeError, ValueError, KeyError):  # as `logging` says itself when the line is written
        return record
    if (told := masked_text(text)) != text:
        record.msg, record.args = told, None
    return record


_make_record = logging.getLogRecordFactory()
logging.setLogRecordFactory(_without_secrets)

for _name in ("prefect.flow_runs", "prefect.task_runs", "prefect.engine", "prefect.flow_engine", "prefect.task_engine"):
    logging.getLogger(_name).addFilter(_told_once)
