"""A Ray session around the work that needs it: joined if an address names a cluster, else started and ended here."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from offline_core.errors import ClusterError, ConfigError, first_line
from offline_core.runtime.engine import ray_errors
from offline_core.runtime.ray_address import check_address
from offline_core.runtime.ray_watchdog import children_ended_with_this_process, terminable, watch_raylet

log = logging.getLogger(__name__)

CPUS_VARIABLE = "OFFLINE_RAY_CPUS"
CPU_QUOTA = "/sys/fs/cgroup/cpu.max"
OBJECT_STORE_VARIABLE = "OFFLINE_RAY_OBJECT_STORE_BYTES"
DASHBOARD_VARIABLE = "OFFLINE_RAY_DASHBOARD"

LOCATION_VARIABLES = (
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_PROFILE",
    "AWS_NO_SIGN_REQUEST",
    "AWS_REQUEST_CHECKSUM_CALCULATION",
    "AWS_RESPONSE_CHECKSUM_VALIDATION",
    "OFFLINE_FILESYSTEMS",
    "OFFLINE_ROOTS",
    "OFFLINE_IMPORTS",
    "AZURE_STORAGE_ACCOUNT_NAME",
    "AZURE_STORAGE_ANON",
    "GOOGLE_CLOUD_PROJECT",
    "STORAGE_EMULATOR_HOST",
)
"""Variables that locate data, sent to a joined cluster. Not the secrets: nodes have their own."""

RAY_VARIABLES = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",  # Ray's C++ prints what Ray also raises, or trivia; the rest is in its log files
    "RAY_DATA_LOG_LEVEL": "CRITICAL",  # what it logs as errors it also raises
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",  # they would disturb this package's
    "RAY_DATA_RAISE_ORIGINAL_MAP_EXCEPTION": "1",  # else an OfflineError arrives as text
}

LEVEL_LINE = b"RAY_BACKEND_LOG_LEVEL"
STDERR = 2
ATTEMPTS = 4
START_SECONDS = 300.0
"""Seconds in which the raylet of a local Ray has to say that it is up; on an idle machine it takes two."""
MIN_OBJECT_STORE_BYTES = 75 * 2**20
"""Ray's lower limit."""
MIN_SHARED_MEMORY_BYTES = 2**30
"""With less free in /dev/shm (a container's default is 64 MiB), the object store goes to disk."""
MAX_OBJECT_STORE_BYTES_ON_DISK = 10**10
"""Ray's upper limit."""

_starting = threading.RLock()
_scope: contextlib.ExitStack | None = None
"""Sessions that end with the open `ray_scope`."""


def ray_is_up() -> bool:
    """Whether this process is connected to Ray."""
    ray = sys.modules.get("ray")
    return ray is not None and ray.is_initialized()


@contextlib.contextmanager
def ray_scope() -> Iterator[None]:
    """Keep the Ray of the first `ray_session` inside the block until the end of the block.

    For a chain of steps that may need Ray: it starts once, and not at all if no step needs it. Nested blocks are one.
    """
    global _scope
    if _scope is not None:
        yield
        return
    with contextlib.ExitStack() as stack:
        _scope = stack
        try:
            yield
        finally:
            _scope = None


@contextlib.contextmanager
def ray_session() -> Iterator[None]:
    """Run Ray inside the block. Nested blocks share the outermost session, which ends with its block or its `ray_scope`.

    Joins the cluster named by `RAY_ADDRESS`, else starts a local Ray with the CPUs of `OFFLINE_RAY_CPUS` (if not set, the
    `usable_cpus`) and the object store of `OFFLINE_RAY_OBJECT_STORE_BYTES` (a third of the free memory, if /dev/shm has
    it), with Ray's dashboard if `OFFLINE_RAY_DASHBOARD` is 1. A local Ray listens on loopback only. Its workers have this
    process's environment; those of a cluster have the `LOCATION_VARIABLES`.

    Raises:
        ConfigError: one of these variables is invalid.
        ClusterError: the cluster at `RAY_ADDRESS` cannot be joined.
        RayLostError: Ray's process on this machine died inside the block.
    """
    import ray

    with contextlib.ExitStack() as stack:
        with _starting:
            if not ray.is_initialized():
                (stack if _scope is None else _scope).enter_context(_connected())
        stack.enter_context(terminable())
        yield


@contextlib.contextmanager
def _connected() -> Iterator[None]:
    _set_variables()
    address = os.environ.get("RAY_ADDRESS")
    joins = address not in (None, "", "local")
    if joins:
        check_address(str(address))
    where = {"address": address, "runtime_env": {"env_vars": _location_variables()}} if joins else _local_ray()
    if not joins:  # else 16, however few the files and CPUs are
        os.environ.setdefault("RAY_DATA_PARQUET_FOOTER_NUM_ACTORS", str(min(16, max(1, local_cpus() // 2))))
    starting = contextlib.ExitStack()
    if not joins:
        starting.enter_context(_on_loopback())
        starting.enter_context(_patiently())
    # In a thread that lives as long as Ray: Linux ends Ray with the thread that started it, and in the main thread Ray
    # would replace the SIGTERM handler, by which Prefect cancels runs.
    with ThreadPoolExecutor(1, thread_name_prefix="ray") as keeper, contextlib.ExitStack() as guarded:
        try:
            with starting:
                node = keeper.submit(_init, where).result()
            if url := node.address_info.get("webui_url"):
                log.info("Ray's dashboard is at http://%s", url)
            raylet = None if joins else node.all_processes["raylet"][0].process.pid
            guarded.enter_context(children_ended_with_this_process(raylet))
            with watch_raylet(raylet):
                yield
        finally:
            keeper.submit(_shutdown, is_own=not joins).result()


@contextlib.contextmanager
def _on_loopback() -> Iterator[None]:
    """Make a Ray that starts inside the block, and all its servers, listen on loopback only.

    They do if the node's address is a loopback address. `ray.init` replaces such an address by the machine's own, unless this
    constant says that the machine cannot be part of a cluster.
    """
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


@contextlib.contextmanager
def _patiently() -> Iterator[None]:
    """Wait for the raylet of a Ray that starts inside the block as long as it lives, and `START_SECONDS` at most.

    Ray waits for 30 s, which beside much other work are too few, and starts nothing again.
    """
    from ray._private import services

    get_node = services.get_node

    def patient(*arguments: Any) -> Any:
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                return get_node(*arguments)
            except RuntimeError:
                if time.monotonic() > until or not _raylet_lives():
                    raise
            time.sleep(0.1)

    services.get_node = patient
    try:
        yield
    finally:
        services.get_node = get_node


@contextlib.contextmanager
def _quiet_connection() -> Iterator[None]:
    """Leave out of stderr the line by which Ray's C++ says, as this process connects, at which level it logs.

    Whatever else is written there meanwhile comes afterwards.
    """
    from ray._private import worker

    connect = worker.connect

    def quiet(*arguments: Any, **options: Any) -> None:
        sys.stderr.flush()
        with tempfile.TemporaryFile() as held, contextlib.ExitStack() as restored:
            stderr = os.dup(STDERR)
            restored.callback(os.close, stderr)
            os.dup2(held.fileno(), STDERR)
            try:
                connect(*arguments, **options)
            finally:
                os.dup2(stderr, STDERR)
                held.seek(0)
                os.write(STDERR, b"".join(line for line in held if LEVEL_LINE not in line))

    worker.connect = quiet
    try:
        yield
    finally:
        worker.connect = connect


def _raylet_lives() -> bool:
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if process.name() == "raylet" and process.status() != psutil.STATUS_ZOMBIE:
                return True
    return False


def _shutdown(*, is_own: bool) -> None:
    """End Ray, and remove its session folder: sockets, spilled objects, log files."""
    import ray

    folder = ray._private.worker._global_node.get_session_dir_path() if is_own and ray.is_initialized() else None
    ray.shutdown()
    if folder is None:
        return
    shutil.rmtree(folder, ignore_errors=True)
    latest = os.path.join(os.path.dirname(folder), "session_latest")
    with contextlib.suppress(OSError):
        if os.readlink(latest) == folder:
            os.unlink(latest)


def _init(where: dict[str, Any]) -> Any:
    """Return Ray's node of this process. A local Ray is started `ATTEMPTS` times at most.

    Beside much other work its processes may give each other up.

    Raises:
        ClusterError: it cannot be joined, or did not start.
    """
    import ray

    is_own = where["address"] == "local"
    for attempt in range(ATTEMPTS if is_own else 1):
        before = set(psutil.Process().children())
        try:
            # Actors' output stays in Ray's log files; their errors are raised here.
            with _quiet_connection():
                ray.init(**where, log_to_driver=False, logging_level=logging.ERROR)
            return ray._private.worker._global_node
        except Exception as error:
            if is_own:
                ray.shutdown()
                _kill(set(psutil.Process().children()) - before)
            if attempt + 1 == (ATTEMPTS if is_own else 1):
                raise ClusterError(
                    f"Connection to Ray ({where['address']}) refused: {first_line(error)}. Its log files say more; they are in "
                    "/tmp/ray/session_latest/logs."
                ) from error
            log.warning("Ray did not start (%s); trying once more.", first_line(error))
    raise AssertionError


def _kill(started: set[psutil.Process]) -> None:
    """End Ray's processes among these, which would live as long as this process."""
    for process in started:
        with contextlib.suppress(psutil.Error):
            if "ray" in process.name() or process.name() == "gcs_server" or "/ray/" in " ".join(process.cmdline()):
                process.kill()


def _location_variables() -> dict[str, str]:
    """Return the variables, with `$` escaped for JSON: Ray would expand `${NAME}` to the node's own, perhaps secret, ones."""
    return {name: value.replace("$", r"\u0024") for name in LOCATION_VARIABLES if (value := os.environ.get(name))}


def _local_ray() -> dict[str, Any]:
    return {
        "address": "local",
        "num_cpus": local_cpus(),
        "object_store_memory": local_object_store_bytes(),
        "include_dashboard": local_dashboard(),
        "dashboard_host": "127.0.0.1",
    }


def local_dashboard() -> bool:
    """Whether a local Ray starts its dashboard.

    Raises:
        ConfigError: `OFFLINE_RAY_DASHBOARD` is neither 0 nor 1, or Ray is installed without its dashboard.
    """
    text = os.environ.get(DASHBOARD_VARIABLE) or "0"
    if text not in ("0", "1"):
        raise ConfigError(f"{DASHBOARD_VARIABLE} has to be 0 or 1, found {text!r}. Correct or unset it.")
    if text == "0":
        return False
    try:
        import ray.dashboard.optional_deps  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"{DASHBOARD_VARIABLE} is 1, and Ray is installed without its dashboard ({error}): pip install 'ray[default]', or "
            "unset the variable."
        ) from error
    return True


def local_cpus() -> int:
    """Return the CPUs of a local Ray.

    Raises:
        ConfigError: `OFFLINE_RAY_CPUS` is no number above zero.
    """
    return _number(CPUS_VARIABLE, 1) or max(2, usable_cpus())  # readers and prelearners need one each


def usable_cpus() -> int:
    """CPUs that this process may use: those of its affinity, and at most its container's quota (`cpu.max` of cgroup v2)."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):  # no such file, or no quota: `max 100000`
        quota, period = map(int, Path(CPU_QUOTA).read_text().split())
        count = min(count, math.ceil(quota / period))
    return count


def local_object_store_bytes() -> int:
    """Return the size of a local Ray's object store.

    Raises:
        ConfigError: `OFFLINE_RAY_OBJECT_STORE_BYTES` is no number, or below Ray's limit.
    """
    if size_bytes := _number(OBJECT_STORE_VARIABLE, MIN_OBJECT_STORE_BYTES):
        return size_bytes
    shared = psutil.disk_usage("/dev/shm").free if os.path.isdir("/dev/shm") else 0
    limit = shared if shared >= MIN_SHARED_MEMORY_BYTES else MAX_OBJECT_STORE_BYTES_ON_DISK
    return max(MIN_OBJECT_STORE_BYTES, min(int(psutil.virtual_memory().available) // 3, limit))


def _number(variable: str, least: int) -> int | None:
    text = os.environ.get(variable)
    if not text:
        return None
    if not text.isdecimal() or int(text) < least:
        raise ConfigError(f"{variable} has to be a whole number of at least {least}, found {text!r}. Correct or unset it.")
    return int(text)


def _set_variables() -> None:
    """Silence Ray and Ray Data, by variables where possible: importing Ray Data takes a second."""
    for name, value in RAY_VARIABLES.items():
        os.environ.setdefault(name, value)
    logging.getLogger("ray").setLevel(logging.ERROR)
    if data := sys.modules.get("ray.data"):  # which has read them already
        context = data.DataContext.get_current()
        context.enable_progress_bars, context.raise_original_map_exception = False, True
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)


def fetch(reference: Any) -> Any:
    """Call `ray.get`, and raise an `OfflineError` without Ray's wrapping."""
    import ray

    with ray_errors():
        return ray.get(reference)
