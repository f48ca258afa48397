"""What containers start, with stand-ins for Prefect and Ray on the PATH."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_SECONDS

FOLDER = Path(__file__).parents[2] / "deployments"
STAYS = "trap 'echo $0 >> ended; exit 0' TERM\nwhile :; do sleep 0.1; done"


def stand_in(folder: Path, **programs: str) -> dict[str, str]:
    """Programs of these names and texts; the environment in which they are found."""
    for name, text in programs.items():
        (folder / name).write_text(f"#!/bin/bash\n{text}\n")
        (folder / name).chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if "AUTH_STRING" not in name}
    return kept | {"PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({"PREFECT_API_AUTH_STRING": "a:b"}, "a:b"),
        ({"PREFECT_API_AUTH_STRING": "a:b", "OFFLINE_SERVER_ADDRESS": "0.0.0.0"}, "a:b"),
        ({"OFFLINE_SERVER_ADDRESS": "127.0.0.1"}, "unset"),
        ({"OFFLINE_SERVER_ADDRESS": "127.0.0.1", "PREFECT_API_AUTH_STRING": ""}, "unset"),
        ({"OFFLINE_SERVER_ADDRESS": "0.0.0.0", "PREFECT_API_AUTH_STRING": ""}, None),
        ({}, None),
    ],
)
def test_a_server_that_others_reach_has_a_password(tmp_path: Path, variables: dict[str, str], told: str | None) -> None:
    environment = stand_in(
        tmp_path, prefect='echo "${PREFECT_SERVER_API_AUTH_STRING-unset}" "$PREFECT_SERVER_API_CORS_ALLOWED_ORIGINS"'
    )
    done = subprocess.run(
        [FOLDER / "start-server.sh"],
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    if told is None:
        assert done.returncode == 2 and "Set PREFECT_API_AUTH_STRING=user:password" in done.stderr and not done.stdout
    else:
        origins = "http://127.0.0.1:4200,http://localhost:4200"
        assert (done.returncode, done.stdout.split()) == (0, [told, origins]), "pages of other addresses may not ask it"
        assert (
            done.stderr.count(".\n") == 1 and ("has no password" if told == "unset" else "asks for the password") in done.stderr
        )


def test_a_worker_that_is_stopped_ends_first_and_its_node_with_it(tmp_path: Path) -> None:
    """Also where the node does not react to SIGTERM, as Ray's does not."""
    ray = "trap '' TERM\necho $$ > node\nwhile :; do sleep 0.1; done"
    worker = f"{STAYS.replace('$0', 'worker')}".replace("while", "echo started; while", 1)
    environment = stand_in(tmp_path, ray=ray, prefect=worker) | {"RAY_HEAD": "head:6379"}
    with subprocess.Popen(
        [FOLDER / "start-worker-on-ray.sh"], env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as script:
        assert script.stdout is not None and script.stdout.readline() == "started\n"
        script.send_signal(signal.SIGTERM)
        assert script.wait(timeout=PATIENCE_SECONDS) == 128 + signal.SIGTERM
    assert (tmp_path / "ended").read_text() == "worker\n"


@pytest.mark.parametrize("gone", ["ray", "prefect"])
def test_when_the_node_or_the_worker_ends_so_does_the_container(tmp_path: Path, gone: str) -> None:
    environment = stand_in(tmp_path, **({"ray": STAYS, "prefect": STAYS} | {gone: "exit 3"})) | {"RAY_HEAD": "head:6379"}
    done = subprocess.run([FOLDER / "start-worker-on-ray.sh"], env=environment, cwd=tmp_path, check=False)
    assert done.returncode == 3
