"""The Prefect server of a flow run: whether it answers, and Prefect's own temporary one where none is set."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import secrets
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from offline_core.secrets import masked_text

ANSWER_SECONDS = 5.0
AGAIN = "what was done is found when you run the same again."


def check_answer(url: str) -> None:
    """Look whether anything answers there: Prefect's client would ask for minutes.

    Raises:
        httpx.TransportError: nothing does. A server that is only slow is none of this.
    """
    import httpx

    with contextlib.suppress(httpx.ReadTimeout):
        httpx.get(url, timeout=ANSWER_SECONDS, verify=False)  # neither asks nor tells anything; Prefect's client verifies


def needs_temporary_server() -> bool:
    """Whether a flow that is called now would start a server."""
    from prefect.context import FlowRunContext
    from prefect.settings import get_current_settings

    return not get_current_settings().api.url and FlowRunContext.get() is None


@contextlib.contextmanager
def temporary_server() -> Iterator[None]:
    """Let flows that are called inside the block share Prefect's temporary server, which ends with this process."""
    from prefect.server.api.server import SubprocessASGIServer
    from prefect.settings import temporary_settings

    with temporary_settings(_settings_of_temporary_server()):
        server = SubprocessASGIServer()  # the one that Prefect's clients would start
        if not server.running:
            server.start()
            assert server.server_process is not None
            end_with_this_process(server.server_process.pid)
        yield


def end_with_this_process(pid: int) -> None:
    """Let a shell end a process when this one is gone, also where it was killed: the shell's input ends then."""
    waiting = subprocess.Popen(["sh", "-c", f"read _; kill {pid} 2>&-"], stdin=subprocess.PIPE, start_new_session=True)
    atexit.register(waiting.communicate)


@functools.cache
def _settings_of_temporary_server() -> Mapping[Any, Any]:
    """Prefect's settings of it, one password for all runs of this process.

    Without a password every web page that is open on this machine could ask it to run code. There is no UI, so no addresses of
    runs are printed, and no automation reads heartbeats, which each run would take a second to stop.
    """
    from prefect import settings

    password = f"run:{secrets.token_hex(16)}"
    return {
        settings.PREFECT_SERVER_EPHEMERAL_ENABLED: True,
        settings.PREFECT_SERVER_API_AUTH_STRING: password,
        settings.PREFECT_API_AUTH_STRING: password,
        settings.PREFECT_SERVER_CORS_ALLOWED_ORIGINS: "",
        settings.PREFECT_SERVER_DATABASE_CONNECTION_URL: _database_url(settings.get_current_settings().home),
        settings.PREFECT_API_BLOCKS_REGISTER_ON_START: False,  # no flow here uses blocks
        settings.PREFECT_MEMOIZE_BLOCK_AUTO_REGISTRATION: False,  # else a later server would take them for registered
        settings.PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None,
        settings.PREFECT_LOGGING_TO_API_ENABLED: False,  # its logs would be seen nowhere
        settings.PREFECT_UI_URL: "",
    }


def _database_url(home: Path) -> str:
    """A database beside that of a server that may be up, for whose locks it would wait.

    It stays, for Prefect takes seconds to make one. In memory where nothing can be written to Prefect's home.
    """
    with contextlib.suppress(OSError):
        home.mkdir(parents=True, exist_ok=True)
    return f"sqlite+aiosqlite:///{home / 'temporary.db' if os.access(home, os.W_OK) else ':memory:'}"


def trouble(error: BaseException, *, is_needed: bool = False) -> str | None:
    """What `error` says about Prefect's server in words, and what to do; None if it is about something else.

    Arguments:
        is_needed: nothing can be done without a server that stays up.
    """
    from httpx import HTTPStatusError, InvalidURL, TransportError

    if isinstance(error, TransportError | InvalidURL) or str(error).startswith("Failed to reach API"):
        return _no_server(is_needed)
    if str(error).startswith("Timed out while attempting to connect to ephemeral"):
        why = str(error).partition("API server. ")[2] or "the machine is overloaded."
        return (
            f"Prefect's temporary server did not start: {why} Run it again later, or start one server for all runs "
            "('prefect server start') and set PREFECT_API_URL."
        )
    if isinstance(error, HTTPStatusError) and error.response.status_code == 503:
        return (
            "The Prefect server's database was busy for too long: it answered 503, and again each time it was asked. Run "
            f"fewer flows at once, or give the server a Postgres database (deployments/README.md); {AGAIN}"
        )
    return None


def _no_server(is_needed: bool) -> str:
    """Where there is no server, and what to do."""
    from flows.server_settings import api_url

    url, name = api_url(), "PREFECT_API_URL"
    if is_needed:
        at = "No Prefect server answers" if url is None else f"No Prefect server answers at {masked_text(url)}"
        return f"{at}. Start it ('prefect server start'), or set {name} to where it is."
    if url is None:
        return f"Prefect's temporary server does not answer any more; {AGAIN}"
    variable = "unset the variable" if name in os.environ else f"unset {name} where 'prefect config view' says that it is set"
    return (
        f"No Prefect server answers at {masked_text(url)} ({name}). Start it ('prefect server start'), or {variable} to do "
        f"without; {AGAIN}"
    )
