"""What the command line says of parameters: those that are meant, those that are shown, those that a shell completes."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from prefect.exceptions import ParameterTypeError

from flows.cli import app
from flows.completion import script_of
from flows.settings import completions, read_values
from flows.stages import flow_of
from offline_core.errors import OfflineError
from offline_core.learning.algorithms.registry import algorithms
from offline_core.learning.config import TrainingConfig
from offline_core.runtime.config import parse


def run(*arguments: str) -> tuple[int, str]:
    """Exit code and output of a command."""
    done = CliRunner().invoke(app, arguments)
    if isinstance(done.exception, OfflineError):
        return 1, str(done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["train", "--algorithm", "cql"], "--algorithm is a parameter, and no option: -s algorithm=cql"),
        (["train", "runs/x", "--lr=1e-3"], "--lr is a parameter, and no option: -s optimizer.learning_rate=1e-3"),
        (["train", "--max-epochs", "--json"], "-s optimizer.max_epochs=…"),
        (["train", "runs/x", "algorithm=cql"], "algorithm=cql is a parameter, and no folder: -s algorithm=cql"),
        (["train", "runs/x", "runs/y", "lr=3"], "lr=3 is a parameter, and no folder: -s optimizer.learning_rate=3"),
        (["import", "year=2024"], "There is nothing at"),
        (["import", "a.csv", "out"], "If it is the output: offline import a.csv -o out"),
        (["train", "--plam"], "Did you mean '--plan'?"),
        (["evalute"], "Did you mean 'evaluate'?"),
        (["expert-to-policy", "--gamma", "0.9"], "-s expert.ppo.gamma=0.9"),
        (["expert-to-policy", "-s", "epochs=3"], " or training.optimizer.max_epochs?"),
    ],
)
def test_a_parameter_that_was_given_otherwise_is_told_as_s_takes_it(
    arguments: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, shown = run(*arguments)
    assert code != 0 and told in shown
    assert list(tmp_path.iterdir()) == []


def shown(*arguments: str) -> dict[str, Any]:
    code, text = run(*arguments, "--show-config")
    assert code == 0
    values: dict[str, Any] = yaml.safe_load(text)
    return values


@pytest.mark.parametrize("algorithm", algorithms())
def test_shown_parameters_are_those_of_the_chosen_algorithm(algorithm: str, tmp_path: Path) -> None:
    settings = [f"algorithm={algorithm}", "optimizer.batch_size=7", "evaluation.environment.kwargs.x=.inf"]
    values = shown("train", *(word for each in settings for word in ("-s", each)))
    assert values.keys() & algorithms().keys() == {algorithm}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(values))
    again = read_values([], str(tmp_path / "c.yaml"))
    assert parse(TrainingConfig, again) == parse(TrainingConfig, read_values(settings, None))


def test_shown_parameters_are_those_of_a_preset_and_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("algorithm: iql\npreset: antmaze\n")
    values = shown("train", "-c", str(tmp_path / "c.yaml"), "-s", "iql.beta=7")
    assert values["optimizer"]["batch_size"] == 256 and values["iql"]["beta"] == 7 and "bc" not in values
    assert shown("train-expert").keys() >= {"ppo"} and not shown("train-expert").keys() & {"sac", "td3", "replay"}
    assert shown("train-expert", "-s", "algorithm=sac").keys() >= {"sac", "replay"}
    swept = shown("sweep", "-s", "grid={algorithm: [cql, dt]}")["training"]
    assert swept.keys() & algorithms().keys() == {"cql", "dt"}


def test_shown_parameters_of_a_chain_are_its_own_defaults() -> None:
    values = shown("logs-to-policy", "-s", "training.algorithm=cql")
    assert values["split"]["held_out_fraction"] == 0.3 and values["training"]["cql"] and "marwil" not in values["training"]
    assert run("train", "--show-config", "-s", "algorithm=margwil")[1].count("did you mean marwil?") == 1


def test_a_flow_refuses_parameters_in_the_same_words() -> None:
    with pytest.raises(ParameterTypeError, match=r"config.optimizer.batch_size: has to be a whole number$"):
        flow_of("train").validate_parameters({"config": {"optimizer": {"batch_size": "many"}}})


def test_an_optional_group_is_shown_once_it_is_given() -> None:
    assert "export" not in shown("record")
    assert shown("record", "-s", "export.output=out")["export"]["output"] == "out"


def test_the_version_is_said() -> None:
    code, text = run("--version")
    assert code == 0 and text.startswith("offline 0.") and text.endswith(f", Python {platform.python_version()}\n")


def test_names_are_completed_group_by_group() -> None:
    models = {"": TrainingConfig}
    assert {"algorithm=", "optimizer.", "network."} <= completions(models, "").keys()
    assert [*completions(models, "opti")] == ["optimizer."]
    names = {"optimizer.max_epochs=", "optimizer.max_updates=", "optimizer.max_gradient_norm="}
    assert {*completions(models, "optimizer.max_")} == names
    assert [*completions({"training": TrainingConfig}, "training.cql.critics.n")] == ["training.cql.critics.number="]


@pytest.mark.parametrize(
    ("words", "completed", "has_blank"),
    [
        (["train", "-s", "optimizer.max_e"], "optimizer.max_epochs=", False),
        (["train", "-s", "optim"], "optimizer.", False),
        (["evalu"], "evaluate", True),
    ],
)
def test_bash_puts_no_blank_after_a_name_that_goes_on(
    words: list[str], completed: str, has_blank: bool, tmp_path: Path
) -> None:
    command = tmp_path / "offline"
    command.write_text(f"#!{sys.executable}\nfrom flows.cli import main\nmain()\n")
    command.chmod(0o755)
    script = f"""
        compopt() {{ printf 'compopt %s %s\\n' "$@"; }}
        {script_of("bash", app)}
        COMP_WORDS=(offline {" ".join(words)}); COMP_CWORD={len(words)}
        _offline_completion {command}
        echo "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == ([] if has_blank else ["compopt -o nospace"]) + [completed]


def test_zsh_is_told_of_names_that_go_on_and_fish_knows() -> None:
    script = script_of("zsh", app)
    assert script.count('"${suffix[@]}"') == 2 and "suffix=(-S '')" in script
    assert "compopt -o nospace" in script_of("bash", app) and "--no-files" in script_of("fish", app)
