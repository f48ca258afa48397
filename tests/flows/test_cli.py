"""The command line, as somebody would use it: real processes."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from flows.cli import app
from flows.settings import read_values
from offline_core.errors import ConfigError
from offline_core.experts.config import ExpertConfig

OFFLINE = [sys.executable, "-c", "from flows.cli import main; main()"]
VERBS = [
    "expert-to-policy",
    "logs-to-policy",
    "train-expert",
    "record",
    "import",
    "convert",
    "check",
    "prune",
    "compact",
    "split",
    "merge",
    "mix",
    "export",
    "train",
    "evaluate",
    "estimate",
    "export-policy",
    "inspect",
    "verify",
]
NEEDS_ARGUMENTS = {"merge": ["a", "b"]}


def offline(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*OFFLINE, *arguments], cwd=cwd, capture_output=True, text=True, timeout=280, check=False)


def test_help_answers_at_once_and_names_every_verb(tmp_path: Path) -> None:
    code = "import sys; from flows.cli import app; app(['--help'], standalone_mode=False); print(sorted(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    text, modules = shown.rsplit("\n[", 1) if "\n[" in shown else (shown, "")
    assert all(verb in text for verb in VERBS)
    for heavy in ("'torch'", "'ray'", "'prefect'", "'gymnasium'", "'pyarrow'"):
        assert heavy not in modules


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in ("inspect", "verify")])
def test_shown_parameters_can_be_read_back(verb: str, tmp_path: Path) -> None:
    shown = offline(verb, *NEEDS_ARGUMENTS.get(verb, []), "--show-config", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    values = yaml.safe_load(shown.stdout)
    assert isinstance(values, dict) and "# " in shown.stdout
    if verb == "train-expert":
        assert ExpertConfig.model_validate(values) == ExpertConfig()


def test_an_error_is_one_message_and_not_a_traceback(tmp_path: Path) -> None:
    for arguments, message in [
        (("inspect", "nowhere"), "DatasetNotFoundError: There is no dataset at"),
        (("train", "-s", "optimizer.batch_size=none_at_all"), "optimizer.batch_size"),
        (("train", "-s", "nonsense"), "not NAME=VALUE"),
        (("train", "-c", "missing.yaml"), "missing.yaml"),
        (("train", "-c", "a.yaml", "-c", "b.yaml"), "-c takes one file, not a.yaml, b.yaml. Put them into one"),
    ]:
        shown = offline(*arguments, cwd=tmp_path)
        assert shown.returncode == 1
        assert message in shown.stderr
        assert "Traceback" not in shown.stderr
    assert list(tmp_path.iterdir()) == []


def test_settings_override_the_file(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("optimizer: {batch_size: 64, max_epochs: 3}\nseed: 1\n")
    values = read_values(["optimizer.batch_size=128", "where=return >= 400"], str(tmp_path / "config.yaml"))
    assert values == {"optimizer": {"batch_size": 128, "max_epochs": 3}, "seed": 1, "where": "return >= 400"}
    with pytest.raises(ConfigError, match="which is a value and no group"):
        read_values(["seed.x=1"], str(tmp_path / "config.yaml"))


def test_inspect_shows_foreign_folders_too(rllib_recordings: Path, tmp_path: Path) -> None:
    shown = offline("inspect", str(rllib_recordings / "cartpole_episodes"), cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "Box(" in shown.stdout and "Discrete(2)" in shown.stdout and "60" in shown.stdout


@pytest.mark.parametrize("place", ["variable", "profile"])
def test_a_prefect_server_that_does_not_answer_is_named(place: str, tmp_path: Path) -> None:
    url = "http://127.0.0.1:9/api"
    environment = os.environ | {"PREFECT_HOME": str(tmp_path)}
    if place == "variable":
        environment["PREFECT_API_URL"] = url
    else:
        (tmp_path / "profiles.toml").write_text(f'active = "far"\n[profiles.far]\nPREFECT_API_URL = "{url}"\n')
    command = [*OFFLINE, "evaluate", "nowhere"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    [line] = [line for line in done.stderr.splitlines() if line.strip()]
    assert line.startswith(f"No Prefect server answers at {url} (PREFECT_API_URL). Start it")
    assert ("unset the variable" in line) == (place == "variable")
    assert ("'prefect config view' says" in line) == (place == "profile")


def test_a_database_that_another_process_writes_to_is_named(tmp_path: Path) -> None:
    database = tmp_path / "home" / "prefect.db"
    database.parent.mkdir()
    program = "from flows.prefect_server import wait_for_database as wait; wait.__defaults__ = (0.5,); "
    environment = os.environ | {"PREFECT_HOME": str(database.parent)}
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("PRAGMA journal_mode = WAL")
        other.execute("BEGIN IMMEDIATE")
        command = [sys.executable, "-c", program + OFFLINE[-1], "evaluate", "nowhere"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    waiting, message = [line for line in done.stderr.splitlines() if line.strip()]
    assert waiting.startswith(f"Waiting for the Prefect database {database}")
    assert message.startswith(f"DatabaseBusyError: The Prefect database {database} is locked")
    for remedy in (f"fuser {database}", "PREFECT_HOME", "prefect server start", "PREFECT_API_URL", "Postgres"):
        assert remedy in message


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["prune", "s3://key:hidden@lake/x", "out"], "has credentials in it"),
        (["train", "runs/x", "s3://lake/x?secret_key=hidden"], "has settings behind a question mark"),
        (["import", "s3://key:hidden@lake/x.csv"], "has credentials in it"),
        (["merge", "s3://key:hidden@lake/x", "runs/y"], "has credentials in it"),
        (["evaluate", "s3a://lake/policy"], "s3a:// is written s3:// here"),
        (["expert-to-policy", "s3:/lake/demo"], "names no bucket; write s3://bucket/folder"),
    ],
)
def test_places_are_checked_before_anything_runs(arguments: list[str], told: str, tmp_path: Path) -> None:
    done = offline(*arguments, cwd=tmp_path)
    said = done.stdout + done.stderr
    assert done.returncode == 1 and told in " ".join(said.split())
    assert "hidden" not in said and "flow run" not in said.lower()
    assert not list(tmp_path.rglob("*.db"))


def test_record_takes_an_export_beside_its_own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr("flows.cli._run", lambda name, values, show, **more: given.update(values=values, **more))
    CliRunner().invoke(app, ["record", "-s", "episodes=3", "-s", "export.format=d4rl", "-s", "export.output=out"])
    assert given["values"] == {"episodes": 3} and (given["export"].format, given["export"].output) == ("d4rl", "out")
