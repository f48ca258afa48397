"""Prefect's processes, started and ended, and what tests ask of them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil

from tests.waiting import PATIENCE_SECONDS, wait_until

T = TypeVar("T")

REPOSITORY = Path(__file__).parents[2]
CODE = ("deployments", "flows", "tasks", "offline_core", "pyproject.toml")
POOL = "offline"
FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


def checkout(folder: Path) -> Path:
    """A folder that looks like the repository's root and has `runs` of its own."""
    folder.mkdir(parents=True)
    for name in CODE:
        (folder / name).symlink_to(REPOSITORY / name)
    return folder


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def end(process: subprocess.Popen[bytes], *, seconds: float = 60.0) -> None:
    """Ends a process as Ctrl-C does; after some seconds it, and whatever it started, is killed."""
    with contextlib.suppress(psutil.NoSuchProcess):
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        process.send_signal(signal.SIGINT)
        _, alive = psutil.wait_procs(family, timeout=seconds)
        for member in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
    process.wait()


@dataclasses.dataclass(frozen=True)
class Orchestra:
    """A server that answers, its pool, its deployments and a worker."""

    home: Path
    """PREFECT_HOME: database, profiles, logs of the processes."""
    root: Path
    """Working directory of deployments and runs; `runs/…` of their parameters is in here."""
    api_url: str
    ui_url: str
    environment: dict[str, str]
    """Of every process that belongs to it."""
    workers: list[subprocess.Popen[bytes]] = dataclasses.field(default_factory=list)

    @classmethod
    @contextlib.contextmanager
    def started(cls, *, home: Path, root: Path, deployments: Iterable[str] = (), **settings: str) -> Iterator[Orchestra]:
        """Starts server, pool, deployments and worker; whatever happens, ends worker and server, in this order.

        `deployments` are names (each takes a second; none is all of them), `settings` further environment variables.
        """
        with cls.with_server(home=home, root=root, **settings) as orchestra:
            orchestra.prefect("work-pool", "create", POOL, "--type", "process")
            orchestra.start_worker()
            orchestra.deploy(*deployments)
            yield orchestra

    @classmethod
    @contextlib.contextmanager
    def with_server(cls, *, home: Path, root: Path, **settings: str) -> Iterator[Orchestra]:
        """Starts a server alone, and ends it and all workers that were started meanwhile."""
        home.mkdir(parents=True, exist_ok=True)
        orchestra = cls.at_free_port(home=home, root=root, **settings)
        with contextlib.ExitStack() as stack:
            stack.callback(
                end, orchestra.start("server", "prefect", "server", "start", "--port", orchestra.ui_url.rpartition(":")[2])
            )
            stack.callback(orchestra.end_workers)
            orchestra.wait_for_health()
            yield orchestra

    @classmethod
    def at_free_port(cls, *, home: Path, root: Path, **settings: str) -> Orchestra:
        """Nothing is started yet."""
        url = f"http://127.0.0.1:{free_port()}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "RAY_"))}
        environment = kept | {
            "PREFECT_HOME": str(home),
            "PREFECT_API_URL": f"{url}/api",
            "PREFECT_WORKER_QUERY_SECONDS": "1",  # instead of 10, lest every test wait for the worker to look
            "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "2",  # instead of 60
            "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",  # instead of 180, and the least there is
            "RAY_USAGE_STATS_ENABLED": "0",
            "COLUMNS": "160",
            **settings,
        }
        return cls(home=home, root=root, api_url=f"{url}/api", ui_url=url, environment=environment)

    def start(self, name: str, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Starts `python -m MODULE ARGUMENTS` in the background, its output in home/NAME.log."""
        with open(self.home / f"{name}.log", "ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=self.root,
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a Ctrl-C at pytest's terminal is pytest's
            )

    def start_worker(self) -> None:
        """Starts a worker of the pool."""
        self.workers.append(self.start("worker", "prefect", "worker", "start", "--pool", POOL))

    def end_workers(self) -> None:
        """Ends all workers, and what they run."""
        for worker in self.workers:
            end(worker)

    def wait_for_health(self) -> None:
        """Returns when the server answers."""

        def healthy() -> bool:
            with contextlib.suppress(httpx.TransportError):
                return httpx.get(f"{self.api_url}/health", timeout=5).status_code == 200
            return False

        wait_until(healthy, what=f"the server; {self.home}/server.log")

    def prefect(
        self, *arguments: str, code: int | None = 0, seconds: float = PATIENCE_SECONDS, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs `prefect ARGUMENTS`; asserts its exit code unless `code` is None."""
        return self.run([sys.executable, "-m", "prefect", *arguments], code=code, seconds=seconds, **variables)

    def run(
        self, command: list[str], *, code: int | None = 0, seconds: float = PATIENCE_SECONDS, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command in `root`, with the environment of all and `variables`; asserts its exit code unless it is None."""
        done = subprocess.run(
            command,
            cwd=self.root,
            env=self.environment | variables,
            capture_output=True,
            text=True,
            timeout=seconds,
            stdin=subprocess.DEVNULL,
        )
        assert code in (None, done.returncode), f"{command} came to {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done

    def deploy(self, *names: str) -> subprocess.CompletedProcess[str]:
        """Deploys what is named; all of it without a name, as the README says."""
        chosen = [argument for name in names for argument in ("--name", name)] or ["--all"]
        command = ["--no-prompt", "deploy", *chosen, "--prefect-file", "deployments/prefect.yaml"]
        return self.prefect(*command)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """What the server answers, parsed; `path` as in "/flow_runs/filter"."""

        def answered() -> httpx.Response | None:
            answer = httpx.request(method, f"{self.api_url}{path}", json=body, timeout=PATIENCE_SECONDS)
            return None if answer.status_code == 503 else answer  # SQLite is busy; Prefect's own client asks again, too

        answer = wait_until(answered, what=f"{method} {path} to be served")
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def submit(self, deployment: str, parameters: dict[str, Any] | None = None, **body: Any) -> str:
        """Asks for a run of a deployment, "flow/profile". Returns the run's id."""
        found = self.ask("GET", f"/deployments/name/{deployment}")
        asked = {"parameters": parameters or {}, "state": {"type": "SCHEDULED"}, **body}
        return str(self.ask("POST", f"/deployments/{found['id']}/create_flow_run", asked)["id"])

    def flow_run(self, run: str) -> dict[str, Any]:
        """A flow run as the server knows it."""
        return dict(self.ask("GET", f"/flow_runs/{run}"))

    def task_runs(self, run: str, *, attempt: int = 1) -> dict[str, str]:
        """State type by the name of the task's function, such as train_expert, in the flow run's n-th attempt."""
        found = self.ask("POST", "/task_runs/filter", {"flow_runs": {"id": {"any_": [run]}}})
        return {
            each["task_key"].rpartition("-")[0]: each["state_type"] for each in found if each["flow_run_run_count"] == attempt
        }

    def wait_for_task(self, run: str, task: str, *, attempt: int = 1) -> None:
        """Returns while the task runs.

        Raises:
            AssertionError: it, or the flow run, was over before it could be seen.
            TimeoutError: it did not start in time.
        """

        def is_running() -> bool:
            state = self.task_runs(run, attempt=attempt).get(task)
            assert state not in FINAL, f"{task} is {state} already; give it more to do."
            assert state or self.flow_run(run)["state_type"] not in FINAL, self.logs(run)
            return state == "RUNNING"

        wait_until(is_running, what=f"{task} of run {run} to begin")

    def wait_for(self, run: str, *states: str, seconds: float = PATIENCE_SECONDS) -> dict[str, Any]:
        """The flow run once its state is one of `states`, by type (COMPLETED, RUNNING …).

        Raises:
            AssertionError: it ended in another state; says how, with the run's last log lines.
            TimeoutError: it did not end in time.
        """

        def arrived() -> dict[str, Any] | None:
            found = self.flow_run(run)
            if found["state_type"] in states:
                return found
            assert found["state_type"] not in FINAL, f"{json.dumps(found['state'], indent=1)}\n{self.logs(run)}"
            return None

        return wait_until(arrived, seconds=seconds, what=f"run {run} to be {' or '.join(states)}")

    def pid_of(self, run: str) -> int:
        """The process that executes the flow run."""
        return int(self.flow_run(run)["infrastructure_pid"].rpartition(":")[2])

    def processes(self, text: str) -> list[psutil.Process]:
        """Processes with `text` in their command line that these tests started, directly or not: their environment says so."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("PREFECT_HOME") == str(self.home) and text in " ".join(process.cmdline()):
                    found.append(process)
        return found

    def wait_for_no_ray(self, *, seconds: float = PATIENCE_SECONDS) -> None:
        """Returns when no process of Ray's is left, actors included.

        Raises:
            AssertionError: some are; names them.
        """
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: not self.processes("ray"), seconds=seconds, what="Ray to be gone")
        assert not (left := self.processes("ray")), [" ".join(process.cmdline())[:120] for process in left]

    def wait_for_worker(self, run: str, *, attempt: int = 1) -> None:
        """Returns when the worker is done with the n-th attempt of a run, which may be some seconds after the run ended.

        After a crash it imports the flow to look for hooks and only then reports the crash a second time; a retry that has
        begun by then is taken for crashed.
        """
        query = {
            "filter": {
                "event": {"name": ["prefect.worker.executed-flow-run"]},
                "related": {"id": [f"prefect.flow-run.{run}"]},
            }
        }
        wait_until(
            lambda: self.ask("POST", "/events/filter", query)["total"] >= attempt,
            what=f"the worker to be done with run {run}",
        )

    def logs(self, run: str, last: int = 40) -> str:
        """The last lines that the run logged."""
        asked = {"logs": {"flow_run_id": {"any_": [run]}}, "sort": "TIMESTAMP_DESC", "limit": last}
        return "\n".join(line["message"] for line in reversed(self.ask("POST", "/logs/filter", asked)))

    def artifacts(self, run: str) -> dict[str, str]:
        """Content by key of the artifacts that a flow run left."""
        found = self.ask("POST", "/artifacts/filter", {"artifacts": {"flow_run_id": {"any_": [run]}}})
        return {each["key"]: each["data"] for each in found}
