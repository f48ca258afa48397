"""One Ray session around whatever needs it: joined if there is one to join, started and ended here if not."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

from offline_core.errors import OfflineError


@contextlib.contextmanager
def ray_session() -> Iterator[None]:
    """Ray is up inside the block. Nested blocks share the outermost session, which alone ends it.

    Joins the cluster named by `RAY_ADDRESS`, else starts a local one with this machine's cores. The process's SIGTERM
    handler survives `ray.init`, which replaces it, so that whoever runs us can still cancel in good order.
    """
    import ray

    if ray.is_initialized():
        yield
        return
    _quiet_loggers()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # Ray's C++ says on our terminal what Ray also raises, or what is no news; what only it says is in its log files.
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    in_main_thread = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGTERM) if in_main_thread else None
    address = os.environ.get("RAY_ADDRESS")
    ray.init(
        address=address or "local",
        num_cpus=None if address else max(2, os.cpu_count() or 1),  # readers and prelearners need a slot each
        include_dashboard=None if address else False,
        log_to_driver=False,  # what actors print stays in Ray's own log files; what they raise is raised here
        logging_level=logging.ERROR,
    )
    if in_main_thread:
        signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        ray.shutdown()


def _quiet_loggers() -> None:
    """Ray's chatter is not the user's news, and its progress bars would stand in the way of ours."""
    from ray.data import DataContext

    context = DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.raise_original_map_exception = True  # else an error of ours arrives as nothing but text
    logging.getLogger("ray").setLevel(logging.ERROR)
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # what it logs as errors is raised as well


def fetch(reference: Any) -> Any:
    """`ray.get` that raises our own errors as they were raised, without Ray's wrapping."""
    import ray

    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, OfflineError):
            raise error.cause from None
        raise
