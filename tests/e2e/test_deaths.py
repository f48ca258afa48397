"""Commands and served runs that are stopped, or whose Ray dies: what they say, what the server says, and what is left."""

from __future__ import annotations

import glob
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.orchestra import FINAL, Orchestra, checkout, end
from tests.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.slow

OFFLINE = [sys.executable, "-c", "from flows import cli, stopping; stopping.ORDERLY_SECONDS = 600; cli.main()"]
"""`offline`, which is not ended for being slow where the machine is."""
ENDLESS = {"total_steps": 10**9, "evaluation": {"target_return": 10**6}, "compute": {"compile": False}}
LEARNERS = {
    "algorithm": "bc",
    "optimizer.max_epochs": 1_000_000,
    "optimizer.batch_size": 64,
    "evaluation.play": "false",
    "data.prelearners": 0,
    "compute.learners": 2,
    "compute.cpus_per_learner": 0.5,
}
SMALL_RAY = {"OFFLINE_RAY_CPUS": "2", "OFFLINE_RAY_OBJECT_STORE_BYTES": str(100 * 2**20)}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orchestra]:
    """A server, with neither pool nor worker, and an expert to record."""
    place = tmp_path_factory.mktemp("deaths")
    with Orchestra.with_server(home=place / "prefect", root=checkout(place / "checkout"), **SMALL_RAY) as started:
        started.run([*OFFLINE, "train-expert", "runs/expert", "-s", "total_steps=4096"])
        yield started


def begun(orchestra: Orchestra, name: str, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    """`offline ARGUMENTS` in the background; what it says is in home/NAME.log."""
    with open(orchestra.home / f"{name}.log", "wb") as log:
        return subprocess.Popen(
            [*OFFLINE, *arguments],
            cwd=orchestra.root,
            env=environment or orchestra.environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def recording(orchestra: Orchestra, name: str) -> tuple[subprocess.Popen[bytes], list[psutil.Process]]:
    """A recording that plays, and the processes below it."""
    process = begun(orchestra, name, "record", "runs/expert/best", f"runs/{name}", "-s", "episodes=1000000")

    def playing() -> list[psutil.Process]:
        assert process.poll() is None, said(orchestra, name)
        below = psutil.Process(process.pid).children(recursive=True)
        return below if any("ray::Recorder" in each.name() for each in below) else []

    return process, wait_until(playing, what="recorders to play")


def learning(orchestra: Orchestra, name: str) -> tuple[subprocess.Popen[bytes], list[psutil.Process]]:
    """A training whose two learners learn, and the processes below it."""
    orchestra.run([*OFFLINE, "record", "runs/expert/best", f"runs/{name}-data", "-s", "episodes=20", "-s", "num_recorders=1"])
    settings = [f"-s{key}={value}" for key, value in LEARNERS.items()]
    process = begun(orchestra, name, "train", f"runs/{name}-data", f"runs/{name}", *settings)
    records = orchestra.root / "runs" / name / "metrics.jsonl"

    def at_work() -> list[psutil.Process]:
        assert process.poll() is None, said(orchestra, name)
        return psutil.Process(process.pid).children(recursive=True) if records.exists() and records.stat().st_size else []

    return process, wait_until(at_work, what="learners to learn")


def said(orchestra: Orchestra, name: str) -> str:
    return (orchestra.home / f"{name}.log").read_text()


def last_run(orchestra: Orchestra) -> dict[str, Any]:
    (run,) = orchestra.ask("POST", "/flow_runs/filter", {"sort": "START_TIME_DESC", "limit": 1})
    return dict(run)


def assert_nothing_is_left(orchestra: Orchestra, pid: int, below: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(below, timeout=PATIENCE_SECONDS)
    assert not [each for each in alive if each.status() != psutil.STATUS_ZOMBIE]
    assert not glob.glob(f"/tmp/ray/session_*_{pid}")
    assert not list((orchestra.root / "runs").rglob(".tmp-*"))


@pytest.mark.parametrize(
    ("death", "code", "sentence", "message"),
    [
        ("raylet", 1, "Ray's process on this machine (raylet", "Ray's process on this machine (raylet"),
        (signal.SIGTERM, 143, "Stopped by SIGTERM. Run the same again", "aborted by a termination signal"),
        (signal.SIGINT, 130, "Stopped by SIGINT. Run the same again", "aborted by an interrupt signal"),
    ],
    ids=["raylet", "SIGTERM", "SIGINT"],
)
def test_a_command_ends_in_a_sentence(server: Orchestra, death: Any, code: int, sentence: str, message: str) -> None:
    process, below = recording(server, f"stopped-{code}")
    if death == "raylet":
        next(each for each in below if each.name() == "raylet").kill()
    else:
        process.send_signal(death)
    assert process.wait(PATIENCE_SECONDS) == code
    text = said(server, f"stopped-{code}")
    assert sentence in text.splitlines()[-1]
    assert "Traceback" not in text and "*** SIG" not in text
    run = last_run(server)
    assert run["state_type"] == "CRASHED" and message in run["state"]["message"]
    assert_nothing_is_left(server, process.pid, below)


@pytest.mark.parametrize(
    ("death", "code", "sentence"),
    [("raylet", 1, "Ray's process on this machine (raylet"), (signal.SIGTERM, 143, "Stopped by SIGTERM. Run the same again")],
    ids=["raylet", "SIGTERM"],
)
def test_a_training_with_learners_ends_in_a_sentence(server: Orchestra, death: Any, code: int, sentence: str) -> None:
    process, below = learning(server, f"learners-{code}")
    if death == "raylet":
        next(each for each in below if each.name() == "raylet").kill()
    else:
        process.send_signal(death)
    assert process.wait(PATIENCE_SECONDS) == code, said(server, f"learners-{code}")
    assert sentence in said(server, f"learners-{code}").splitlines()[-1]
    assert last_run(server)["state_type"] == "CRASHED"
    assert_nothing_is_left(server, process.pid, below)


def test_a_second_signal_ends_a_command_at_once(server: Orchestra) -> None:
    process, below = recording(server, "twice")

    def told_again() -> bool:
        process.send_signal(signal.SIGTERM)  # two that are sent together, or while nothing runs, are one
        return process.poll() is not None

    wait_until(told_again, what="the command to end")
    assert process.wait(PATIENCE_SECONDS) in (143, -signal.SIGTERM), "at its very end Python has given its handlers up"
    assert "by a second signal" in said(server, "twice").splitlines()[-1]
    psutil.wait_procs(below, timeout=PATIENCE_SECONDS)
    assert not [each for each in below if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize(
    ("verb", "group"),
    [("train-expert", ""), ("expert-to-policy", "expert.")],
    ids=["in its process", "on a temporary server"],
)
def test_stopped_without_a_server_it_ends_in_order(server: Orchestra, verb: str, group: str) -> None:
    settings = [f"-s{group}{name}={value}" for name, value in ENDLESS.items()]
    environment = {name: value for name, value in server.environment.items() if name != "PREFECT_API_URL"}
    process = begun(server, verb, verb, f"runs/alone-{verb}", *settings, **environment)
    root = server.root / "runs" / f"alone-{verb}"
    wait_until(lambda: process.poll() is not None or [*root.rglob(".lock")], what="the training to begin")
    below = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_SECONDS) == 143, said(server, verb)
    assert "Stopped by SIGTERM" in said(server, verb).splitlines()[-1] and "Traceback" not in said(server, verb)
    assert_nothing_is_left(server, process.pid, below)


def test_what_is_served_is_cancelled_when_serving_is_stopped(tmp_path: Path) -> None:
    with Orchestra.with_server(home=tmp_path / "prefect", root=checkout(tmp_path / "checkout")) as orchestra:
        serving = orchestra.start("serve", "deployments.serve", "--profile", "smoke")
        try:
            wait_until(lambda: "Serving" in said(orchestra, "serve"), what="deployments to be served")
            run = orchestra.submit("train-expert/train-expert-smoke", {"output": "runs/served", "config": ENDLESS})
            orchestra.wait_for_task(run, "train_expert")
            below = psutil.Process(serving.pid).children(recursive=True)
            serving.send_signal(signal.SIGTERM)
            assert serving.wait(PATIENCE_SECONDS) == 143
            assert "Stopped by SIGTERM" in said(orchestra, "serve")
            assert orchestra.flow_run(run)["state_type"] == "CANCELLED"
            assert_nothing_is_left(orchestra, serving.pid, below)

            serving = orchestra.start("serve", "deployments.serve", "--profile", "smoke")
            again = orchestra.submit(
                "train-expert/train-expert-smoke", {"output": "runs/again", "config": {"total_steps": 2048}}
            )
            assert orchestra.wait_for(again, *FINAL)["state_type"] == "COMPLETED", "its concurrency slot is free"
        finally:
            end(serving)


def test_a_command_whose_server_is_killed_as_its_run_starts_says_so(tmp_path: Path) -> None:
    orchestra = Orchestra.at_free_port(home=tmp_path / "prefect", root=checkout(tmp_path / "checkout"))
    orchestra.home.mkdir()
    serving = orchestra.start("server", "prefect", "server", "start", "--port", orchestra.ui_url.rpartition(":")[2])
    try:
        orchestra.wait_for_health()
        process = begun(orchestra, "orphan", "train-expert", "runs/orphan", "-s", "total_steps=2048")
        wait_until(lambda: orchestra.ask("POST", "/flow_runs/filter", {}), what="the run to be made")
        for each in [*psutil.Process(serving.pid).children(recursive=True), psutil.Process(serving.pid)]:
            each.kill()
    finally:
        end(serving)
    try:
        assert process.wait(PATIENCE_SECONDS) == 1, said(orchestra, "orphan")
    finally:
        end(process)
    text = said(orchestra, "orphan")  # Prefect's own handler of logs has a last word at the exit
    assert f"No Prefect server answers at {orchestra.api_url}" in text and "Traceback" not in text
