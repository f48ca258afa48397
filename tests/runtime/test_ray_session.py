"""Ray as flows meet it: begun when needed, ended with its scope, joined by address or refused in seconds, gone afterwards."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

import psutil
import pytest

from offline_core.errors import ClusterError, ConfigError
from offline_core.runtime import ray_address
from offline_core.runtime import ray_session as ray_session_module
from offline_core.runtime.ray_session import (
    DASHBOARD_VARIABLE,
    local_cpus,
    local_dashboard,
    local_object_store_bytes,
    ray_scope,
    ray_session,
    usable_cpus,
)
from tests.waiting import PATIENCE_SECONDS

"""Two idle agents of Ray look for the rest of it for a minute when it was killed."""

SMALL_RAY = {"OFFLINE_RAY_CPUS": "3", "OFFLINE_RAY_OBJECT_STORE_BYTES": str(100 * 2**20)}

PROGRAM = """
import os, signal, sys, threading
import psutil, ray
from offline_core.runtime.ray_session import ray_scope, ray_session

class Cancelled(BaseException):
    pass

def cancel(number, frame):
    raise Cancelled

def tell():
    print("processes", *[child.pid for child in psutil.Process().children(recursive=True)], flush=True)

"""


def start(program: str, **environment: str) -> subprocess.Popen[str]:
    """The program in a process of its own, which prints `processes` and the ids of all it started when it calls `tell`."""
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM + textwrap.dedent(program)],
        env={name: value for name, value in os.environ.items() if name != "RAY_USAGE_STATS_ENABLED"} | SMALL_RAY | environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def told(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The processes below the program, as soon as it tells them."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("processes"):
            return [psutil.Process(int(pid)) for pid in line.split()[1:]]
    raise AssertionError(process.communicate()[1])


def ended(process: subprocess.Popen[str], *, answer: str | None = None) -> tuple[int, str]:
    """Its exit code and all that it has still said; `answer` is what it waits for, if it does."""
    output, errors = process.communicate(answer)
    return process.returncode, output + errors


def assert_gone(processes: list[psutil.Process]) -> None:
    assert len(processes) > 3, "there was no Ray"
    _, alive = psutil.wait_procs(processes, timeout=PATIENCE_SECONDS)
    assert not [process.as_dict(["name", "status"]) for process in alive if process.status() != psutil.STATUS_ZOMBIE]


def test_a_scope_keeps_what_its_first_session_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a scope it ends with the session, however that ends."""
    told: list[str] = []

    @contextmanager
    def connected() -> Iterator[None]:
        told.append("started")
        try:
            yield
        finally:
            told.append("ended")

    monkeypatch.setattr(ray_session_module, "_connected", connected)
    monkeypatch.setattr("ray.is_initialized", lambda: told[-1:] == ["started"])
    with ray_scope():
        with ray_scope():
            assert told == []
            for _ in range(2):
                with ray_session(), ray_session():
                    assert told == ["started"]
        assert told == ["started"], "the inner scope is no scope of its own"
    assert told == ["started", "ended"]
    with pytest.raises(ValueError, match="within"), ray_session():
        raise ValueError("within")
    assert told == ["started", "ended"] * 2


@pytest.mark.slow
def test_ray_starts_with_the_first_session_and_ends_with_the_scope() -> None:
    program = """
    with ray_scope():
        with ray_scope():
            def step():
                with ray_session():
                    print(ray.get_runtime_context().get_job_id(), int(ray.cluster_resources()["CPU"]))
            thread = threading.Thread(target=step)  # as of a task that was submitted; Ray outlives it
            thread.start()
            thread.join()
            step()
            tell()
        assert ray.is_initialized(), "the inner scope is no scope of its own"
    sys.exit(7 + ray.is_initialized())
    """
    process = start(program)
    assert process.stdout is not None
    first, second = process.stdout.readline(), process.stdout.readline()
    assert first == second == "01000000 3\n"
    processes = told(process)
    code, said = ended(process)
    assert code == 7 and "Error" not in said
    assert_gone(processes)


@pytest.mark.slow
def test_without_a_scope_it_ends_with_the_session_however_that_ends() -> None:
    program = """
    try:
        with ray_session():
            tell()
            raise ValueError
    except ValueError:
        sys.exit(7 + ray.is_initialized())
    """
    process = start(program)
    processes = told(process)
    code, said = ended(process)
    assert code == 7 and "Error" not in said
    assert_gone(processes)


@pytest.mark.slow
def test_a_local_ray_listens_on_loopback_only_and_reports_no_usage() -> None:
    program = """
    from ray._common.usage.usage_lib import usage_stats_enabled
    with ray_session():
        assert not usage_stats_enabled() and not ray.get(ray.remote(usage_stats_enabled).remote())
        @ray.remote(num_cpus=1)
        class Actor:
            def ready(self):
                return True
        actors = [Actor.remote(), Actor.remote()]
        assert all(ray.get([actor.ready.remote() for actor in actors]))
        tell()
        input()
    """
    process = start(program)
    processes = [psutil.Process(process.pid), *told(process)]
    found = listening_sockets(processes)
    _, said = ended(process, answer="\n")
    assert {"gcs_server", "raylet", "ray::Actor"} <= {name for name, _ in found}, said
    assert "RAY_BACKEND_LOG_LEVEL" not in said
    assert not [(name, address) for name, address in found if not address.removeprefix("::ffff:").startswith("127.")]


def listening_sockets(processes: list[psutil.Process]) -> set[tuple[str, str]]:
    """The process's name and the address, of every TCP socket that listens."""
    found = set()
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # a worker of Ray's that was idle
            connections = process.net_connections(kind="tcp")
            found |= {(process.name(), each.laddr.ip) for each in connections if each.status == psutil.CONN_LISTEN}
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 7), (signal.SIGKILL, -signal.SIGKILL)],
    ids=["cancelled", "killed"],
)
def test_nothing_of_our_local_ray_is_left(number: signal.Signals, code: int) -> None:
    program = """
    signal.signal(signal.SIGTERM, cancel)
    try:
        with ray_scope():
            with ray_session():
                ray.get(ray.remote(lambda: 1).remote())
            tell()
            signal.pause()
    except Cancelled:
        sys.exit(7 + ray.is_initialized())
    """
    process = start(program)
    processes = told(process)
    process.send_signal(number)
    assert ended(process)[0] == code
    assert_gone(processes)


@pytest.mark.slow
def test_cancelled_while_ray_starts() -> None:
    program = """
    signal.signal(signal.SIGTERM, cancel)
    start = ray._private.worker.connect
    def connect(*args, **kwargs):
        tell()
        return start(*args, **kwargs)
    ray._private.worker.connect = connect
    try:
        with ray_session():
            signal.pause()
    except Cancelled:
        sys.exit(7 + ray.is_initialized())
    """
    process = start(program)
    processes = told(process)
    process.send_signal(signal.SIGTERM)
    assert ended(process)[0] == 7
    assert_gone(processes)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OFFLINE_RAY_CPUS", "many"),
        ("OFFLINE_RAY_CPUS", "0"),
        ("OFFLINE_RAY_OBJECT_STORE_BYTES", "1e9"),
        ("OFFLINE_RAY_OBJECT_STORE_BYTES", "1000"),
    ],
)
def test_wrong_settings_are_named(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    with (
        pytest.raises(ConfigError, match=rf"{variable} has to be a whole number of at least .* found '{value}'"),
        ray_session(),
    ):
        pass


def test_without_settings_there_is_room_for_a_reader_and_others_keep_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in SMALL_RAY:
        monkeypatch.delenv(variable, raising=False)
    assert local_cpus() >= 2
    assert 75 * 2**20 <= local_object_store_bytes() <= psutil.virtual_memory().total / 3


@pytest.mark.parametrize(("quota", "most"), [("150000 100000", 2), ("1000 100000", 1), ("max 100000", None), (None, None)])
def test_a_container_may_use_its_quota(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, quota: str | None, most: int | None
) -> None:
    monkeypatch.setattr(ray_session_module, "CPU_QUOTA", str(tmp_path / "cpu.max"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {*range(64)})
    if quota is not None:
        (tmp_path / "cpu.max").write_text(f"{quota}\n")
    assert usable_cpus() == (most or 64)


def test_rays_dashboard_comes_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, asked in (("", False), ("0", False)):
        monkeypatch.setenv(DASHBOARD_VARIABLE, value)
        assert local_dashboard() is asked
    monkeypatch.setenv(DASHBOARD_VARIABLE, "yes")
    with pytest.raises(ConfigError, match="has to be 0 or 1, found 'yes'"):
        local_dashboard()
    monkeypatch.setenv(DASHBOARD_VARIABLE, "1")
    monkeypatch.setitem(sys.modules, "ray.dashboard.optional_deps", ModuleType("optional_deps"))
    assert local_dashboard() and ray_session_module._local_ray()["dashboard_host"] == "127.0.0.1"
    monkeypatch.setitem(sys.modules, "ray.dashboard.optional_deps", None)  # it cannot be imported
    with pytest.raises(ConfigError, match=r"pip install 'ray\[default\]'"):
        local_dashboard()


@contextmanager
def listening(answer: bytes) -> Iterator[int]:
    """A server that says the same to everybody, or nothing."""
    server = socket.create_server(("", 0))
    stopped = threading.Event()

    def serve() -> None:
        callers = []
        while not stopped.is_set():
            try:
                callers.append(server.accept()[0])
                callers[-1].sendall(answer)
            except OSError:
                continue

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield server.getsockname()[1]
    finally:
        stopped.set()
        server.close()


def refusal(monkeypatch: pytest.MonkeyPatch, address: str, *, patience: float = 60.0) -> str:
    """What is raised where `RAY_ADDRESS` is `address`."""
    monkeypatch.setattr(ray_address, "ANSWER_SECONDS", patience)  # who asks has to import Ray first, on a busy machine
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(ClusterError) as raised, ray_session():
        pass
    assert address in str(raised.value)
    return str(raised.value)


def test_an_address_where_nothing_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
    assert "nothing answers there" in refusal(monkeypatch, f"127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("no-such-host.invalid:6379", "the host no-such-host.invalid does not exist"),
        ("nonsense", "that is no valid address"),
        ("ray://127.0.0.1:10001", "for a client outside of the cluster"),
    ],
)
def test_addresses_that_cannot_be(monkeypatch: pytest.MonkeyPatch, address: str, message: str) -> None:
    assert message in refusal(monkeypatch, address)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"], ids=["mute", "another service"])
@pytest.mark.slow
def test_something_that_is_not_ray(monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    with listening(answer) as port:
        assert "it does not answer as Ray does" in refusal(monkeypatch, f"127.0.0.1:{port}", patience=10.0)


@pytest.mark.slow
def test_a_ray_that_does_not_start_in_time_is_started_once_more() -> None:
    program = """
    import logging
    logging.basicConfig()
    first, init = [True], ray.init
    def late(**settings):
        if first.pop() if first else False:
            init(**settings)
            raise Exception("The current node timed out during startup.")
        return init(**settings)
    ray.init = late
    with ray_session():
        tell()
    """
    process = start(program)
    processes = told(process)
    code, said = ended(process)
    assert code == 0 and "trying once more" in said
    assert_gone(processes)
