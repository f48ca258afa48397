"""One Ray session around whatever needs it: joined if there is one to join, started and ended here if not."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil

from offline_core.errors import ClusterError, ConfigError, OfflineError, first_line
from offline_core.ray_address import check_address
from offline_core.ray_watch import terminable, watched

log = logging.getLogger(__name__)

CPUS_VARIABLE = "OFFLINE_RAY_CPUS"
OBJECT_STORE_VARIABLE = "OFFLINE_RAY_OBJECT_STORE_BYTES"
DASHBOARD_VARIABLE = "OFFLINE_RAY_DASHBOARD"

PLACES = (
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_PROFILE",
    "AWS_NO_SIGN_REQUEST",
    "AWS_REQUEST_CHECKSUM_CALCULATION",
    "AWS_RESPONSE_CHECKSUM_VALIDATION",
    "OFFLINE_FILESYSTEMS",
    "AZURE_STORAGE_ACCOUNT_NAME",
    "AZURE_STORAGE_ANON",
    "GOOGLE_CLOUD_PROJECT",
    "STORAGE_EMULATOR_HOST",
)
"""Variables that say where data is; a cluster that we join is told them. Secrets are not: nodes have their own."""

MIN_OBJECT_STORE_BYTES = 75 * 2**20
"""Ray refuses less."""
DECENT_SHARED_MEMORY_BYTES = 2**30
"""Where /dev/shm has less free (a container's default is 64 MiB), the object store is better off on disk."""
MAX_OBJECT_STORE_BYTES_ON_DISK = 10**10
"""Ray refuses more."""

_starting = threading.RLock()
_scope: contextlib.ExitStack | None = None
"""Ends what was begun inside the open `ray_scope`."""


@contextlib.contextmanager
def ray_scope() -> Iterator[None]:
    """The first `ray_session` inside the block, if there is one, begins what lasts to the end of the block.

    For whoever chains steps that may need Ray: it starts once, and not at all if no step needs it. Nested blocks are one.
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
    """Ray is up inside the block. Nested blocks share the outermost session, which ends with its block or its `ray_scope`.

    Joins the cluster named by `RAY_ADDRESS`, else starts a local Ray with the CPUs of `OFFLINE_RAY_CPUS` (all of this machine
    if not set) and the object store of `OFFLINE_RAY_OBJECT_STORE_BYTES` (a third of the free memory, if /dev/shm has it), with
    Ray's dashboard if `OFFLINE_RAY_DASHBOARD` is 1. A local Ray listens on loopback only. What runs there has our environment:
    all of it on this machine, and the variables of `PLACES` on a cluster.

    Raises:
        ConfigError: one of these variables is no number that could be meant.
        ClusterError: there is nothing at `RAY_ADDRESS` that could be joined.
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
    _quiet_loggers()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # Ray's C++ says on our terminal what Ray also raises, or what is no news; what only it says is in its log files.
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    address = os.environ.get("RAY_ADDRESS")
    joins = address not in (None, "", "local")
    if joins:
        check_address(str(address))
    where = {"address": address, "runtime_env": {"env_vars": _places()}} if joins else _own_ray()
    bound = contextlib.nullcontext() if joins else _on_loopback()
    # In a thread that lasts as long as Ray does: Linux ends Ray with the thread that started it, and in the main thread Ray
    # would replace the SIGTERM handler of whoever runs us, who could not cancel in good order any more.
    with ThreadPoolExecutor(1, thread_name_prefix="ray") as keeper:
        try:
            with bound:
                node = keeper.submit(_init, where).result()
            if url := node.address_info.get("webui_url"):
                log.info("Ray's dashboard is at http://%s", url)
            with watched(None if joins else node.all_processes["raylet"][0].process.pid):
                yield
        finally:
            keeper.submit(_shutdown, is_own=not joins).result()


@contextlib.contextmanager
def _on_loopback() -> Iterator[None]:
    """A Ray that is started inside listens on loopback only, and so does everything it starts.

    Ray's servers do so where the node's address is a loopback address. `ray.init` replaces such an address by the machine's
    own, unless it takes this for a machine that cannot be part of a cluster, which it decides by this constant.
    """
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


def _shutdown(*, is_own: bool) -> None:
    """Ends Ray, and removes the folder that it leaves for every session: sockets, spilled objects, log files."""
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
    """Ray's node of this process. A Ray of its own is started once more if it does not start: Ray itself waits for 30 s only.

    Raises:
        ClusterError: it cannot be joined, or did not start.
    """
    import ray

    is_own = where["address"] == "local"
    for is_last in (False, True) if is_own else (True,):
        before = set(psutil.Process().children())
        try:
            # What actors print stays in Ray's own log files; what they raise is raised here.
            ray.init(**where, log_to_driver=False, logging_level=logging.ERROR)
            return ray._private.worker._global_node
        except Exception as error:
            if is_own:
                ray.shutdown()
                _kill(set(psutil.Process().children()) - before)
            if is_last:
                raise ClusterError(
                    f"Ray ({where['address']}) did not take us in: {first_line(error)}. Its log files say more; they are in "
                    "/tmp/ray/session_latest/logs."
                ) from error
            log.warning("Ray did not start (%s); it is started once more.", first_line(error))
    raise AssertionError


def _kill(started: set[psutil.Process]) -> None:
    """Ends Ray's processes among these, which would wait until this process ends."""
    for process in started:
        with contextlib.suppress(psutil.Error):
            if "ray" in process.name() or process.name() == "gcs_server" or "/ray/" in " ".join(process.cmdline()):
                process.kill()


def _places() -> dict[str, str]:
    """Ray would put the node's own variables, secrets perhaps, where a value has `${NAME}`: in JSON, $ can be written so."""
    return {name: value.replace("$", r"\u0024") for name in PLACES if (value := os.environ.get(name))}


def _own_ray() -> dict[str, Any]:
    return {
        "address": "local",
        "num_cpus": own_cpus(),
        "object_store_memory": own_object_store_bytes(),
        "include_dashboard": own_dashboard(),
        "dashboard_host": "127.0.0.1",
    }


def own_dashboard() -> bool:
    """Whether a Ray that is started here brings its dashboard.

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


def own_cpus() -> int:
    """CPUs of a Ray that is started here.

    Raises:
        ConfigError: `OFFLINE_RAY_CPUS` is no number above zero.
    """
    return _number(CPUS_VARIABLE, 1) or max(2, os.cpu_count() or 1)  # readers and prelearners need a slot each


def own_object_store_bytes() -> int:
    """Size of the object store of a Ray that is started here.

    Raises:
        ConfigError: `OFFLINE_RAY_OBJECT_STORE_BYTES` is no number of bytes, or fewer than Ray's least.
    """
    if given := _number(OBJECT_STORE_VARIABLE, MIN_OBJECT_STORE_BYTES):
        return given
    shared = psutil.disk_usage("/dev/shm").free if os.path.isdir("/dev/shm") else 0
    limit = shared if shared >= DECENT_SHARED_MEMORY_BYTES else MAX_OBJECT_STORE_BYTES_ON_DISK
    return max(MIN_OBJECT_STORE_BYTES, min(int(psutil.virtual_memory().available) // 3, limit))


def _number(variable: str, least: int) -> int | None:
    text = os.environ.get(variable)
    if not text:
        return None
    if not text.isdecimal() or int(text) < least:
        raise ConfigError(f"{variable} has to be a whole number of at least {least}, found {text!r}. Correct or unset it.")
    return int(text)


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
