"""Runs a stage in the process of its command, without Prefect: what a task and its flow do around a stage, and nothing more."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import Any

from flows.console import ConsoleHandler
from flows.server_settings import ui_url
from offline_core.keeping.perform import perform
from offline_core.plans.permission import check_permitted
from offline_core.runtime import progress
from offline_core.runtime.ray_session import ray_scope
from offline_core.runtime.stage import Stage


def run_in_process(entry: Stage[..., Any], **parameters: Any) -> Any:
    """The result of a stage; its log lines are shown on stderr, below a bar of its progress if that is a terminal.

    Raises:
        OfflineError: what is wrong is refused before anything starts.
    """
    lines, root = ConsoleHandler(), logging.getLogger()
    root.addHandler(lines)
    try:
        check_permitted(parameters)
        with ray_scope(), contextlib.nullcontext() if sys.stderr.isatty() else progress.progress_logged():
            return perform(entry, parameters.pop("config"), parameters, runs_url=ui_url())
    finally:
        root.removeHandler(lines)
