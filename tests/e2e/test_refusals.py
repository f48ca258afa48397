"""What people are told who ask for what cannot work."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from deployments.definitions import definitions
from tests.e2e.orchestra import Orchestra, free_port

pytestmark = pytest.mark.slow

OFFLINE = str(Path(sys.executable).with_name("offline"))


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        ('config={"total_steps": 0}', "'config.total_steps'. Failure reason: 0 is less than the minimum of 1"),
        ('config={"bogus": 0}', "Additional properties are not allowed ('bogus' was unexpected)"),
        ("bogus=1", "specified but not found on the deployment: 'bogus'"),
    ],
)
def test_wrong_parameters_are_refused_before_there_is_a_run(orchestra: Orchestra, parameter: str, message: str) -> None:
    refused = orchestra.prefect("deployment", "run", "train-expert/train-expert-smoke", "--param", parameter, code=1)
    assert message in " ".join(refused.stdout.split())


def test_wrong_parameters_in_the_file_are_refused_at_deployment(orchestra: Orchestra) -> None:
    wrong = definitions()[0] | {"name": "wrong", "parameters": {"seed": -1, "expert": {"total_steps": 0}}}
    (orchestra.root / "wrong.yaml").write_text(yaml.safe_dump({"deployments": [wrong]}))
    refused = orchestra.prefect("--no-prompt", "deploy", "--all", "--prefect-file", "wrong.yaml", code=1)
    assert "0 is less than the minimum of 1" in " ".join((refused.stdout + refused.stderr).split())


def test_a_ray_that_does_not_answer_fails_the_run_at_once(orchestra: Orchestra, fresh_root: str) -> None:
    address = f"127.0.0.1:{free_port()}"
    orchestra.wait_for(orchestra.submit("train-expert/train-expert-smoke"), "COMPLETED")
    output = {"output": fresh_root}  # a recording that is found needs no Ray
    run = orchestra.submit("record/record-smoke", output, job_variables={"env": {"RAY_ADDRESS": address}})
    failed = orchestra.wait_for(run, "FAILED")
    assert address in failed["state"]["message"] and "RAY_ADDRESS" in failed["state"]["message"]
    assert "nothing answers there" in failed["state"]["message"]  # as is seen before Ray is asked, which tries for minutes


@pytest.mark.parametrize(
    "command",
    [
        [OFFLINE, "check", "runs/nowhere"],
        [sys.executable, "-m", "deployments.automations"],
        [sys.executable, "-m", "deployments.serve"],
    ],
    ids=lambda command: command[-1],
)
def test_a_server_that_does_not_answer_is_named(orchestra: Orchestra, command: list[str]) -> None:
    address = f"http://127.0.0.1:{free_port()}/api"
    refused = orchestra.run(command, code=1, PREFECT_API_URL=address)
    assert "Traceback" not in refused.stderr
    assert address in refused.stderr and "prefect server start" in refused.stderr
