"""Names of runs say what ran, on what; those that people give stay."""

from __future__ import annotations

import inspect
import shutil
from pathlib import Path
from typing import Any

import pytest
from prefect.utilities.names import generate_slug

from flows.short_forms import CHAINS
from flows.stages import flow_of
from offline_core.learning.config import TrainingConfig
from offline_core.runtime.stage import STAGES, load
from tasks.run_names import RunName, is_generated, name_of, template_of

STORED = Path(__file__).parent.parent / "data" / "stored" / "format-2" / "recording"


def named(stage: str, **parameters: Any) -> str:
    entry = STAGES[stage]
    return name_of(template_of(entry), {"config": load(entry.config)(), **parameters})


def test_a_training_is_named_by_its_algorithm_and_the_version_it_reads(tmp_path: Path) -> None:
    config = TrainingConfig(algorithm="marwil", seed=7)
    name = named("train", config=config, dataset="s3://lake/runs/recording", output="runs/policy", version=3)
    assert name == "train marwil on recording@3, seed 7"
    shutil.copytree(STORED, tmp_path / "recording")
    assert named("train", dataset=f"{tmp_path}/recording/", output="x", version=None) == "train bc on recording@1, seed 0"
    assert named("train", dataset=f"{tmp_path}/recording@1", output="x") == "train bc on recording@1, seed 0"
    assert named("train", dataset="nowhere", output="x") == "train bc on nowhere, seed 0"


@pytest.mark.parametrize(
    ("stage", "parameters", "name"),
    [
        ("evaluate", {"policy": "runs/marwil/best"}, "evaluate marwil, 100 episodes, seed 0"),
        ("evaluate", {"policy": "runs/registry/hvac@champion"}, "evaluate hvac@champion, 100 episodes, seed 0"),
        ("check", {"dataset": "runs/recording", "version": 2}, "check recording@2"),
        ("merge", {"datasets": ["runs/a", "runs/b", "runs/c"], "output": "runs/d"}, "merge a and 2 more"),
        ("import", {"source": "logs/2026/*.csv", "output": "runs/imported"}, "import *.csv"),
        ("mix", {"output": "runs/mixture"}, "mix mixture"),
        ("rollback", {"registry": "runs/registry/hvac"}, "rollback hvac@champion"),
    ],
)
def test_other_stages_are_named_by_what_they_read(stage: str, parameters: dict[str, Any], name: str) -> None:
    assert named(stage, **parameters) == name


@pytest.mark.parametrize("chain", CHAINS)
def test_every_chain_has_a_name_of_its_defaults(chain: str) -> None:
    made = flow_of(chain)
    name = made.flow_run_name.fill({each.name: each.default for each in inspect.signature(made.fn).parameters.values()})
    assert name.startswith(f"{made.name}: ") and name.endswith("seed 0")


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_has_a_name_of_its_defaults(stage: str) -> None:
    entry = STAGES[stage]
    name = named(stage, **{each.name: each.default for each in entry.arguments})
    assert name.startswith(entry.title) and "{" not in name and len(name) <= 100


def test_a_name_has_no_secret_and_no_seed_that_is_not_known() -> None:
    assert name_of("a {root}, seed {seed}", {"root": "runs/x", "seed": None}) == "a x"


def test_names_that_people_gave_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(is_generated(generate_slug(2)) for _ in range(200))
    for mine in ("nightly", "my-run", "train bc on recording@1, seed 0", "a-b-c", "marwil-again"):
        assert not is_generated(mine)
    name = RunName(lambda parameters: f"train on {parameters['dataset']}")
    monkeypatch.setattr("prefect.runtime.flow_run.parameters", {"dataset": "x"}, raising=False)
    monkeypatch.setattr("prefect.runtime.flow_run.name", "fanatic-mantis", raising=False)
    assert name() == "train on x"
    monkeypatch.setattr("prefect.runtime.flow_run.name", "mine", raising=False)
    assert name() == "mine"
