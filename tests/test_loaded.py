"""What is loaded by looking, by asking and by stages that need little: large packages take seconds, and most runs none of them.

One process does all of it, one thing after the other, those first that may load least: what one loads, those before did not.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from offline_core.runtime.stage import STAGES
from tests.data.datasets.factories import episode, write_dataset

VERB = "from flows.cli import app; app({}, standalone_mode=False)"
STEPS: dict[str, tuple[str, str]] = {
    "the list of stages": (
        "from offline_core.runtime.stage import STAGES; print(*STAGES)",
        "numpy pydantic pyarrow polars gymnasium torch ray prefect",
    ),
    "the door": ("import offline_core", "pyarrow polars gymnasium torch ray prefect"),
    "--help": (VERB.format(["--help"]), "pydantic pyarrow polars gymnasium rich torch ray prefect"),
    "parameters of a policy": (
        "import offline_core.policies.config, offline_core.policies.evaluation",
        "polars matplotlib onnx torch ray prefect",
    ),
    "a list": ("import offline_core.keeping.homepage.listing", "polars torch ray prefect"),
    "cards and the gate": (
        "import offline_core.data.quality.check, offline_core.keeping.cards",
        "matplotlib jinja2 polars torch ray prefect",
    ),
    "parameters of a training": ("import offline_core.learning.config", "torch ray prefect"),
    "--show-config": (VERB.format(["train", "--show-config"]), "torch ray prefect"),
    "the plan of an import": (VERB.format(["import", "{recorded}", "--plan"]), "torch ray prefect"),
    "check": (VERB.format(["check", "{dataset}"]), "torch ray prefect"),
    "prune": (VERB.format(["prune", "{dataset}", "{output}"]), "torch ray prefect"),
    "tasks": ("import tasks.stage as s; s._may_pass(0, 0, type('', (), {{'data': OSError()}}))", "ray"),
}
"""What is done, and what is not loaded by it."""
PROGRAM = """
import contextlib, io, json, sys
for code in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code, {})
    print(json.dumps([printed.getvalue(), [*sys.modules]]))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, rllib_recordings: Path) -> dict[str, tuple[str, set[str]]]:
    """What each step printed, and what was loaded after it."""
    folder = tmp_path_factory.mktemp("loaded")
    places = {
        "dataset": write_dataset(folder / "recording", [episode(number) for number in range(8)]).location.uri,
        "output": str(folder / "pruned"),
        "recorded": str(rllib_recordings / "cartpole_json_plain"),
    }
    code = json.dumps([code.format(**places) for code, _ in STEPS.values()])
    done = subprocess.run([sys.executable, "-c", PROGRAM, code], capture_output=True, text=True, check=True)
    told = [json.loads(line) for line in done.stdout.splitlines()]
    return {step: (printed, {*modules}) for step, (printed, modules) in zip(STEPS, told, strict=True)}


@pytest.mark.parametrize("step", STEPS)
def test_it_loads_none_of_what_it_does_not_need(step: str, found: dict[str, tuple[str, set[str]]]) -> None:
    assert not {*STEPS[step][1].split()} & found[step][1]


def test_it_did_what_it_was_asked_for(found: dict[str, tuple[str, set[str]]]) -> None:
    assert found["the list of stages"][0].split() == [*STAGES]
    for step, told in (
        ("--help", "Commands:"),
        ("--show-config", "algorithm: "),
        ("the plan of an import", "format: sample_batch"),
        ("check", "Gate passed"),
        ("prune", "Pruned"),
    ):
        assert told in found[step][0], step
    assert "pydantic" in found["prune"][1] and "prefect" in found["tasks"][1]
