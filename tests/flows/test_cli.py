"""The command line: what it takes, refuses and shows; real processes where a server or a database is missing."""

from __future__ import annotations

import contextvars
import inspect
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import httpx
import numpy as np
import pytest
import yaml
from click.testing import CliRunner

from flows import cli
from flows.cli import app
from flows.local_flow import LocalFlow
from flows.prefect_server import trouble
from flows.settings import read_values
from flows.stages import flow_of
from offline_core.control_characters import visible
from offline_core.data.curation.config import PruningConfig
from offline_core.data.quality.config import QualityConfig
from offline_core.errors import ConfigError, OfflineError
from offline_core.keeping.perform import perform
from offline_core.learning.experts.config import ExpertConfig
from offline_core.policies.recording.config import RecordingExport
from offline_core.runtime.reporting.card import Card
from offline_core.runtime.stage import STAGES, Stage, load
from tests.data.datasets.factories import episode, write_dataset
from tests.e2e.orchestra import free_port

OFFLINE = [sys.executable, "-c", "from flows.cli import main; main()"]


def run(*arguments: str) -> tuple[int, str]:
    """Exit code and output of a command that runs in this process."""
    done = CliRunner().invoke(app, arguments)
    if isinstance(done.exception, OfflineError):
        return 1, f"{type(done.exception).__name__}: {done.exception}"
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


def ended(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command as a shell sees them, though it runs in this process."""
    monkeypatch.setattr(sys, "argv", ["offline", *arguments])
    capsys.readouterr()
    with pytest.raises(SystemExit) as done:
        contextvars.copy_context().run(cli._run_verb)  # which keeps whether --json was asked for
    code = done.value.code or 0
    assert isinstance(code, int)
    return code, *capsys.readouterr()


def test_help_names_every_verb_and_its_arguments() -> None:
    _, shown = run("--help")
    verbs = [
        line.split()[0]
        for line in shown.partition("Commands:")[2].partition("Exit codes:")[0].splitlines()
        if line[2:3].strip()
    ]
    assert verbs[:4] == ["expert-to-policy", "logs-to-policy", "improve-policy", "train-expert"]
    assert verbs[-6:] == ["registry", "verify", "tag", "about", "forget", "completion"]
    assert {stage.title for stage in STAGES.values()} < {*verbs} and len(verbs) == len(STAGES) + 13
    _, shown = run("prune", "--help")
    assert "OUTPUT   Folder of the dataset to write.  [default: runs/pruned]" in shown and "--plan" in shown
    assert run("merge")[0] == 2


@pytest.mark.parametrize("stage", STAGES.values(), ids=lambda stage: stage.title)
def test_the_table_of_stages_says_what_flows_and_core_take(stage: Stage) -> None:
    flow = flow_of(stage.attribute)
    assert flow.name == stage.title
    expected = {
        argument.name: argument.default for argument in stage.arguments if argument.kind not in ("environment", "switch")
    }
    taken = {name: value.default for name, value in inspect.signature(flow.fn).parameters.items()}
    assert taken["config"] == load(stage.config)()
    if stage.title == "import":  # one, where the command line has a list of one
        expected["source"] = "data"
    assert {name: value for name, value in taken.items() if name != "config" and name not in stage.groups} == expected
    core = inspect.signature(stage.loaded).parameters
    assert {*taken} <= {*core}
    if stage.plan is not None:
        load(stage.plan)


@pytest.mark.parametrize("verb", ["expert-to-policy", "logs-to-policy", *(stage.title for stage in STAGES.values())])
def test_shown_parameters_can_be_read_back(verb: str) -> None:
    code, shown = run(verb, "--show-config")
    assert code == 0
    values = yaml.safe_load(shown)
    assert isinstance(values, dict) and "# " in shown
    if verb == "train-expert":
        assert ExpertConfig.model_validate(values) == ExpertConfig()
    if verb == "record":  # an export is made only if it is asked for
        assert "# export:\n" in shown and "#   output: # needed\n" in shown and "export" not in values


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inspect", "nowhere"], "DatasetNotFoundError: There is no dataset at"),
        (["train", "-s", "optimizer.batch_size=none_at_all"], "optimizer.batch_size"),
        (["train", "-s", "nonsense"], "not NAME=VALUE"),
        (["train", "-c", "missing.yaml"], "missing.yaml"),
        (["train", "-c", "a.yaml", "-c", "b.yaml"], "-c takes one file, not a.yaml, b.yaml. Put them into one"),
        (["prune", "s3://key:hidden@lake/x", "out"], "has credentials in it"),
        (["train", "runs/x", "s3://lake/x?secret_key=hidden"], "has settings after a question mark"),
        (["import", "s3://key:hidden@lake/x.csv"], "has credentials in it"),
        (["merge", "s3://key:hidden@lake/x", "runs/y"], "has credentials in it"),
        (["logs-to-policy", "s3://key:hidden@lake/x"], "has credentials in it"),
        (["train", "nowhere"], "DatasetNotFoundError: There is no dataset at"),
        (["record", "nowhere"], "CheckpointError: There is no policy at"),
        (["train-expert", "--env", "CartPol-v1"], "Did you mean 'CartPole-v1'"),
        (["import", "nowhere.csv"], "DatasetNotFoundError: There is nothing at"),
        (["evaluate", "s3a://lake/policy"], "s3a:// is written s3:// here"),
        (["expert-to-policy", "s3:/lake/demo"], "names no bucket; write s3://bucket/folder"),
        (["inspect", "s3:/lake/demo"], "names no bucket; write s3://bucket/folder"),
    ],
)
def test_parameters_and_places_are_checked_before_a_flow_runs(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("flows.prefect_server.temporary_server", lambda: pytest.fail("a server starts"))
    code, shown = run(*arguments)
    assert code == 1 and message in " ".join(shown.split())
    assert "hidden" not in shown
    assert list(tmp_path.iterdir()) == []


def test_an_error_is_one_message_and_not_a_traceback(tmp_path: Path) -> None:
    """In a process of its own."""
    shown = subprocess.run([*OFFLINE, "inspect", "nowhere"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert shown.returncode == 1 and shown.stderr.startswith("\nDatasetNotFoundError: There is no dataset at")
    assert "Traceback" not in shown.stderr


HOSTILE, TURNED = "a\x1b[2J\x1b]0;owned\x07\u202efdp\r\x9b31m", "a\u202efdp"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory, cartpole_policy: str) -> Path:
    """Logs, a dataset with a damaged file, and a registry, whose names and words turn a terminal around."""
    folder = tmp_path_factory.mktemp("hostile") / TURNED
    for name in ("damaged", "whole", TURNED):
        write_dataset(folder / name, [episode(1, eps_id=HOSTILE), episode(2)])
    [file] = (folder / "damaged").glob("*.parquet")
    file.write_bytes(file.read_bytes()[:-1])
    (folder / "logs").mkdir()
    rows = [["episode", "t", "obs", "action", "reward", HOSTILE], *([HOSTILE, t, t, t % 2, t, HOSTILE] for t in range(4))]
    lines = [",".join(f'"{cell}"' for cell in row) for row in rows]
    (folder / "logs" / f"{HOSTILE}.csv").write_text("\n".join(lines), newline="")
    stage = STAGES["promote"]
    config = load(stage.config)(override=HOSTILE, moved_by=HOSTILE)
    perform(stage, config, {"registry": f"{folder}/registry/policy", "source": cartpole_policy})
    return folder


@pytest.mark.parametrize(
    "arguments",
    [
        ("verify", "{0}"),
        ("inspect", "{0}/damaged"),
        ("inspect", "{0}/nowhere"),
        ("ls", "{0}"),
        ("ls", "{0}/nowhere"),
        ("registry", "{0}/registry"),
        ("registry", "{0}/registry/policy"),
        ("tag", "{0}/whole", "audited"),
        ("import", "{0}/logs", "--plan"),
        ("import", "{0}/logs", "-o", "{0}/imported"),
        ("import", "{0}/logs", "-o", "{0}/imported", "-s", "mapping.rewards={1}"),
        ("import", "{1}.csv", "-o", "{0}/imported"),
        ("prune", "{0}/damaged", "{0}/pruned", "-s", "keep_top_fraction=0.5"),
        ("prune", "{0}/whole", "{0}/pruned", "-s", "where={1} = 1"),
        ("check", "{0}/damaged"),
        ("compact", "{0}/whole", "{0}/compact", "--{1}"),
        ("{1}",),
    ],
)
def test_no_name_acts_on_the_terminal(
    arguments: tuple[str, ...], hostile: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    *_, out, err = ended(monkeypatch, capsys, *(argument.format(hostile, HOSTILE) for argument in arguments))
    shown = out + err
    assert not [each for each in shown if each != "\n" and visible(each) != each]
    assert "\\u202efdp" in shown


def test_settings_override_the_file(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("optimizer: {batch_size: 64, max_epochs: 3}\nseed: 1\n")
    values = read_values(["optimizer.batch_size=128", "where=return >= 400"], str(tmp_path / "config.yaml"))
    assert values == {"optimizer": {"batch_size": 128, "max_epochs": 3}, "seed": 1, "where": "return >= 400"}
    with pytest.raises(ConfigError, match="which is a value and no group"):
        read_values(["seed.x=1"], str(tmp_path / "config.yaml"))


def test_settings_fill_an_empty_group_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("optimizer:\nevaluation:\n")
    values = read_values(["optimizer.batch_size=128"], str(tmp_path / "config.yaml"))
    assert values == {"optimizer": {"batch_size": 128}, "evaluation": None}


def test_the_plan_of_an_import_is_its_parameters_too(tmp_path: Path, rllib_recordings: Path) -> None:
    """What a pipe gets is YAML with the page as comments; -o keeps it in a file, and the next import takes it."""
    source = str(rllib_recordings / "cartpole_json_plain")
    code, shown = run("import", source, "--plan")
    assert (
        code == 0
        and shown.startswith("# Ready to import.\n")
        and yaml.safe_load(shown) == {"source": {"format": "sample_batch"}}
    )
    place = tmp_path / "plan.yaml"
    code, page = run("import", source, "--plan", "-o", str(place))
    assert code == 0 and page.splitlines()[-1].endswith(f"offline import {source} -o runs/imported -c {place}")
    assert yaml.safe_load(place.read_text()) == yaml.safe_load(shown) and [*tmp_path.iterdir()] == [place]
    assert read_values([], str(place)) == {"source": {"format": "sample_batch"}}
    named = place.rename(tmp_path / "heat_plan.yaml")
    assert run("import", source, "--plan", "-o", str(named))[0] == 0
    assert f"-o runs/imported -c {named}\n" in named.read_text() and "-c plan.yaml" not in named.read_text()
    assert "parameters" in run("import", str(rllib_recordings / "pendulum_table"), "--plan")[1].splitlines()[0]


def test_what_is_asked_for_is_written_with_the_command_that_goes_on(tmp_path: Path, rllib_recordings: Path) -> None:
    source, data = str(rllib_recordings / "cartpole_json_plain"), str(tmp_path / "data")
    code, shown = run("import", source, "--ask", "-o", data)
    command = f"offline import {source} -o {data} -c {data}.yaml"
    assert code == 0 and command in shown and f"# {command}\n" in Path(f"{data}.yaml").read_text()


def test_notes_of_a_plan_are_told_where_it_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text(
        "eps_id,t,obs,action,reward\n" + "".join(f"a,{t},{t / 2},{t % 2},1.5\n" for t in range(9))
    )
    code, shown = run(
        "import", str(tmp_path / "log.csv"), "--ask", "-o", str(tmp_path / "data"), "-s", "episodes.incomplete=cut"
    )
    assert code == 0 and "Ready to import.\n  note: The observation after 1 last steps is not in the source" in shown


def test_what_is_left_to_decide_is_no_success_of_asking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [f"a,{t},{'' if t else 1},{t % 3},1.5" for t in range(9)]
    (tmp_path / "log.csv").write_text("\n".join(["eps_id,t,obs,action,reward", *rows, ""]))
    monkeypatch.setattr("flows.asking._ask", lambda *_: "stop here")
    code, shown = run("import", str(tmp_path / "log.csv"), "--ask", "-o", str(tmp_path / "data"))
    assert code == 1 and "go on with" not in shown and "1 thing to decide: rows." in shown
    assert f"The answers so far are in {tmp_path / 'data'}.yaml" in shown and (tmp_path / "data.yaml").exists()


def test_answers_are_kept_where_somebody_stops_before_the_last_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [f"{t % 7},{t % 3},{t % 5}" for t in range(40)]
    (tmp_path / "log.csv").write_text("\n".join(["temp,valve,spend", *rows, ""]))
    answers = iter(["valve"])

    def ask(question: str, candidates: list[str]) -> str:
        try:
            return next(answers)
        except StopIteration:
            raise click.Abort from None

    monkeypatch.setattr("flows.asking._ask", ask)
    code, shown = run("import", str(tmp_path / "log.csv"), "--ask", "-o", str(tmp_path / "data"))
    assert code == 1 and f"The answers so far are in {tmp_path / 'data'}.yaml" in shown
    assert yaml.safe_load((tmp_path / "data.yaml").read_text())["mapping"]["actions"] == "valve"


def test_inspect_shows_foreign_folders_too(rllib_recordings: Path) -> None:
    code, shown = run("inspect", str(rllib_recordings / "cartpole_episodes"))
    assert code == 0 and "Box(" in shown and "Discrete(2)" in shown and "60" in shown


def test_a_prefect_server_that_does_not_answer_is_named_before_anything_starts(
    cartpole_policy: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"http://127.0.0.1:{free_port()}/api"
    monkeypatch.setenv("PREFECT_API_URL", url)
    monkeypatch.setattr(LocalFlow, "__call__", lambda *_, **__: pytest.fail("a flow runs"))
    for verb in (["evaluate", cartpole_policy], ["expert-to-policy"]):
        code, _, errors = ended(monkeypatch, capsys, *verb)
        assert code == 1
        [line] = [line for line in errors.splitlines() if line.strip()]
        assert (
            line.startswith(f"No Prefect server answers at {url} (PREFECT_API_URL). Start it") and "unset the variable" in line
        )


def test_a_server_of_a_profile_is_unset_where_prefect_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "profiles.toml").write_text('active = "a"\n[profiles.a]\nPREFECT_API_URL = "http://127.0.0.1:9/api"\n')
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    said = trouble(httpx.ConnectError("refused"))
    assert said is not None and "unset PREFECT_API_URL where 'prefect config view' says that it is set" in said


@pytest.mark.parametrize(("asked", "url", "is_a_flow_run"), [([], None, False), (["--server"], None, True), ([], "up", True)])
def test_a_verb_is_a_flow_run_where_a_server_is_set_or_asked_for(
    asked: list[str], url: str | None, is_a_flow_run: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    monkeypatch.setattr("flows.cli.api_url", lambda: url)
    monkeypatch.setattr("flows.cli._call", lambda flow, **_: ran.append(flow.name))
    monkeypatch.setattr("flows.in_process.run_in_process", lambda stage, **_: ran.append("here"))
    monkeypatch.setattr("flows.cli._shown", lambda call: call())
    run("check", "runs/nowhere", *asked)
    assert ran == ["check" if is_a_flow_run else "here"]


def test_a_chain_tells_each_stage_once_and_last_what_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_dataset(tmp_path / "data", [episode(number) for number in range(6)]).location.uri
    outcome = Card("Chain", {"Prune": "5 of 6 kept"}, verdict="good", word="Done", sentence="All of it.", next="offline ls")

    def chain(_flow: Any, *, quality: QualityConfig, **_: Any) -> Any:
        perform(STAGES["prune"], PruningConfig(keep_top_fraction=0.5), {"dataset": data, "output": str(tmp_path / "pruned")})
        perform(STAGES["check"], quality, {"dataset": data})
        return SimpleNamespace(card=lambda: outcome)

    monkeypatch.setattr("flows.cli._call", chain)
    code, output, _ = ended(monkeypatch, capsys, "logs-to-policy", data)
    pruned, its_card, checked, *_, last, following = output.splitlines()
    assert pruned.startswith("[ok] Pruned: 3 of 6 episodes kept") and its_card.startswith("card: ")
    assert "Gate passed" in checked and (last, following) == ("[ok] Done: All of it.", "next: offline ls")
    assert code == 0 and "kept;" in output and output.count("kept") == 1 and output.count("next:") == 1
    assert "Reused" not in output
    assert "  Reused  yes, made " in ended(monkeypatch, capsys, "logs-to-policy", data)[1]
    damaged = write_dataset(tmp_path / "bad", [episode(0, rewards=np.full(7, np.nan))])
    data = damaged.location.uri
    code, output, errors = ended(monkeypatch, capsys, "logs-to-policy", data)
    assert code == 1 and output.count("non_finite (fail)") == 1 and "next:" not in output
    told = [
        "",
        f"QualityError: {damaged.ref} breaks 1 of 17 rules",
        "Correct the data, or set stop_on to 'never' to go on with",
    ]
    assert [line[: len(expected)] for line, expected in zip(errors.splitlines(), told, strict=True)] == told


def test_record_takes_an_export_beside_its_own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr("flows.cli._run_stage", lambda stage, **given_: given.update(given_) or RecordingExport(output="x"))
    run("record", "-s", "episodes=3", "-s", "export.format=d4rl", "-s", "export.output=out")
    assert given["config"].episodes == 3 and (given["export"].format, given["export"].output) == ("d4rl", "out")
    assert (given["policy"], given["output"]) == ("runs/expert/best", "runs/recording")
    run("train-expert", "--env", "Acrobot-v1", "out")
    assert given["config"].environment.id == "Acrobot-v1" and given["output"] == "out"


@pytest.mark.slow
def test_json_is_all_that_a_process_writes_to_stdout(tmp_path: Path, cartpole_policy: str) -> None:
    command = [*OFFLINE, "evaluate", cartpole_policy, "-s", "episodes=3", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)
    assert result["environment"] == "CartPole-v1" and len(result["returns"]) == 3


def test_json_is_the_result_or_the_error_and_nothing_else_is_on_stdout(
    tmp_path: Path, cartpole_policy: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def offline(*arguments: str) -> tuple[int, Any]:
        code, output, _ = ended(monkeypatch, capsys, *arguments)
        return code, json.loads(output)

    monkeypatch.chdir(tmp_path)
    code, result = offline("evaluate", cartpole_policy, "-s", "episodes=3", "--json")
    assert code == 0 and result["environment"] == "CartPole-v1" and len(result["returns"]) == 3
    (tmp_path / "logs.csv").write_text("obs,actions,rewards,terminateds\n0.5,1,1.0,1\n")
    code, result = offline("import", "logs.csv", "--plan", "--json")
    assert code == 0 and {"roles", "config"} <= result.keys()
    code, result = offline("evaluate", "nowhere", "--json")
    assert code == 1 and result["error"]["type"] == "CheckpointError" and "nowhere" in result["error"]["message"]


def test_shells_complete_verbs_and_parameters() -> None:
    def completed(*words: str) -> list[str]:
        asked = {
            "_OFFLINE_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(["offline", *words]),
            "COMP_CWORD": str(len(words)),
        }
        done = CliRunner().invoke(app, [], env=asked, prog_name="offline")
        return [line.partition(",")[2] for line in done.output.splitlines()]

    assert completed("evalu") == ["evaluate"]
    assert completed("train", "-s", "optimizer.max_e") == ["optimizer.max_epochs="]
    assert "_offline_completion" in run("completion", "bash")[1]
    assert run("completion", "tcsh") == (
        1,
        "ConfigError: There is no completion for 'tcsh'; there is one for bash, zsh and fish.",
    )


def test_what_stops_a_verb_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By `main`, and not by the library as well."""

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("offline_core.keeping.inspection.verification_card", stopped)
    assert run("verify", str(tmp_path)) == (130, "")
