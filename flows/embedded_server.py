"""The Prefect server that a run brings with it where no other is set: Prefect's own temporary one, started without delay.

Prefect would import its whole server into this process first, and then wait; here the process goes on importing what the run
needs while the server starts.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import http.client
import logging
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from prefect.context import FlowRunContext
from prefect.settings import (
    PREFECT_API_AUTH_STRING,
    PREFECT_API_URL,
    PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
    PREFECT_UI_URL,
    get_current_settings,
    temporary_settings,
)

from offline_core.errors import OfflineError

log = logging.getLogger("prefect")
STOP_SECONDS = 5.0
"""Of these to end in order, before it is killed."""
APPLICATION = ["--factory", "prefect.server.api.server:create_app", "--lifespan", "on", "--log-level", "error"]
VARIABLES = {
    "PREFECT__SERVER_EPHEMERAL": "1",  # without a UI, and without services that a single run does not need
    "PREFECT__SERVER_FINAL": "1",
    "PREFECT_SERVER_REGISTER_BLOCKS_ON_START": "false",  # no flow here uses blocks
    "PREFECT_SERVER_MEMOIZE_BLOCK_AUTO_REGISTRATION": "false",  # else a later server would take them for registered
}


class ServerStartError(OfflineError):
    """The Prefect server that a run brings with it did not start."""


class EmbeddedServer:
    """A server process on a free port of loopback, with a database and a password of its own.

    Without a password every web page that is open on this machine could ask it to run code. It ends with this process, also
    where that is killed.
    """

    def __init__(self) -> None:
        settings = get_current_settings()
        self.password = f"run:{secrets.token_hex(16)}"
        self._folder = tempfile.TemporaryDirectory(prefix="offline-prefect-", ignore_cleanup_errors=True)
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.port: int = listening.getsockname()[1]
            log.info("Starting temporary server on %s, with a password that only this run has", self.address)
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "flows.server_process",
                    self._folder.name,
                    *APPLICATION,
                    "--fd",
                    str(listening.fileno()),
                ],
                env=os.environ | VARIABLES | settings.to_environment_variables(exclude_unset=True) | self._protection,
                pass_fds=[listening.fileno()],  # connections wait in it until the server answers
                stdin=subprocess.PIPE,  # which is open as long as this process is there
            )
        self._patience = settings.server.ephemeral.startup_timeout_seconds
        atexit.register(self.stop)

    @property
    def _protection(self) -> dict[str, str]:
        return {
            "PREFECT_API_AUTH_STRING": self.password,
            "PREFECT_SERVER_API_AUTH_STRING": self.password,
            "PREFECT_SERVER_API_CORS_ALLOWED_ORIGINS": self.address,
        }

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait(self) -> None:
        """Returns when it answers.

        Raises:
            ServerStartError: it does not in `server.ephemeral.startup_timeout_seconds`, or its process ended.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=self._patience)
        try:
            connection.request("GET", "/api/health")
            connection.getresponse().read()
        except (OSError, http.client.HTTPException) as error:
            self.stop()
            why = f"no answer in {self._patience} s" if isinstance(error, TimeoutError) else f"its process ended ({error!r})"
            raise ServerStartError(
                f"The Prefect server that this run brings with it did not start: {why}. The machine is overloaded, or the "
                f"folder for temporary files ({tempfile.gettempdir()}) is full. Run it again later, or start one server for "
                "all runs ('prefect server start') and set PREFECT_API_URL."
            ) from error
        finally:
            connection.close()

    def stop(self) -> None:
        """Ends the process, and returns when it has ended."""
        atexit.unregister(self.stop)
        start.cache_clear()
        log.info("Stopping temporary server on %s", self.address)
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()  # which the process did, unless it was killed


def is_needed() -> bool:
    """Whether a flow that is called now would bring a server with it."""
    settings = get_current_settings()
    return settings.api.url is None and settings.server.ephemeral.enabled and FlowRunContext.get() is None


@functools.cache
def start() -> EmbeddedServer:
    """The server of this process; started by the first call, without waiting until it answers."""
    return EmbeddedServer()


@contextlib.contextmanager
def used(server: EmbeddedServer) -> Iterator[None]:
    """Lets Prefect use it inside the block.

    It has no UI, so no addresses of runs are printed. It ends with its run, so no automation reads heartbeats, which each
    run would take a second to stop.

    Raises:
        ServerStartError: it does not answer.
    """
    server.wait()
    url = f"{server.address}/api"
    protected = {PREFECT_API_URL: url, PREFECT_API_AUTH_STRING: server.password}
    with temporary_settings(protected | {PREFECT_UI_URL: "", PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        yield
