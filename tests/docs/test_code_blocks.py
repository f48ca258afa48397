"""Every block of code in README, docs/, deployments/ and CONTRIBUTING is checked, and with the slow tests run.

A page runs in a folder of its own that has what pages speak of: an expert, a recording, a policy, foreign files.
Only blocks below `<!-- not run: why -->` are left out.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
import typer

import offline_core
from examples.world import make_world
from flows.cli import app, main
from flows.settings import read_values
from offline_core.errors import ConfigError
from offline_core.runtime.stage import STAGES as TABLE
from offline_core.runtime.yaml_values import load_yaml
from tests.docs.blocks import PAGES, ROOT, Block, blocks, commands, inline_commands
from tests.docs.parameters import FLOWS, fill_in

pytestmark = pytest.mark.filterwarnings("default")
NO_CODE = {"", "text", "mermaid"}
"""Folders, outputs and pictures."""
FILE = re.compile(r"# ([\w-]+\.(?:yaml|json|py))\b")
"""The first line of a block that is a file for other blocks of its page."""
MOST_NOT_RUN = 32
FROM_NOTHING = ["README.md", "docs/tutorial.md"]
"""Pages whose lines need nothing that others have made."""
CODE_PAGES = [page for page in PAGES if any(block.language not in NO_CODE for block in blocks(page))]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, ray_up: None) -> Path:
    """What `python -m examples.world` makes."""
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture
def folder(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a page's commands are run; like the repository's root for `examples`, which it can import."""
    place = tmp_path / "here"
    shutil.copytree(world, place)
    (place / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])  # in this process they are everybody's
    return place


@pytest.mark.parametrize("page", CODE_PAGES)
def test_names_verbs_and_parameters_of_each_block_exist(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    run = _blocks_run(page)
    _write_files(run, tmp_path)
    for block in run:
        match block.language:
            case "python":
                _check_python(block)
            case "console":
                for words in commands(block):
                    _check_command(words, block)
            case "yaml":
                _check_yaml(block)
            case "json":
                json.loads(block.text)
            case "toml":
                tomllib.loads(block.text)
            case other:
                pytest.fail(f"{block}: nothing here checks {other!r}; it is python, console, yaml, json, toml or text")


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_server")
@pytest.mark.parametrize("page", [page for page in CODE_PAGES if page not in FROM_NOTHING])
def test_each_block_of_code_does_what_it_says(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    run = _blocks_run(page)
    _write_files(run, folder)
    for block in run:
        if block.language == "python":
            exec(compile(block.text, str(block), "exec"), names)
        elif block.language == "console":
            for words in commands(block):
                _run(words, block, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("page", FROM_NOTHING)
def test_pages_for_newcomers_run_as_they_stand_in_an_empty_folder(page: str, tmp_path: Path) -> None:
    """Python as one script, then the commands, each in a process of its own; nothing is there before, or made smaller."""
    run = _blocks_run(page)
    (tmp_path / "script.py").write_text("\n".join(block.text for block in run if block.language == "python"))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "OFFLINE_", "RAY_"))}
    environment |= {"PREFECT_HOME": str(tmp_path / "prefect"), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    lines = [["python", "script.py"]]
    lines += [words for block in run if block.language == "console" for words in commands(block) if words[0] == "offline"]
    for words in lines:
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{page}: {' '.join(words)}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("page", PAGES)
def test_commands_inside_of_sentences_and_tables_exist(page: str) -> None:
    """Their verb, arguments and options; `…` stands for anything."""
    for place, text in inline_commands(page):
        words = shlex.split(re.split(r" >>? | \| ", text)[0])
        if words[1] not in app.commands:
            pytest.fail(f"{place}: there is no verb {words[1]!r} in `{text}`")
        if "…" not in text and len(words) > 2:
            try:
                app.commands[words[1]].make_context(words[1], words[2:])
            except (typer.Exit, click.ClickException) as error:
                pytest.fail(f"{place}: `{text}`: {getattr(error, 'message', error)}")


def test_what_is_not_run_says_why_and_is_little(capsys: pytest.CaptureFixture[str]) -> None:
    left_out = [block for page in PAGES for block in blocks(page) if block.not_run]
    code = [block for page in PAGES for block in blocks(page) if block.language not in NO_CODE]
    with capsys.disabled():
        sys.stdout.write(f"\n{len(left_out)} of {len(code)} blocks are not run:\n")
        sys.stdout.writelines(f"  {block}: {block.not_run}\n" for block in left_out)
    for block in left_out:
        assert block.not_run is not None and len(block.not_run.split()) > 1, f"{block} does not say why it is not run"
        for test in re.findall(r"tests/[\w/]+\.py", block.not_run):
            assert (ROOT / test).is_file(), f"{block} is run by {test}, which is not there"
    assert len(left_out) <= MOST_NOT_RUN


def _blocks_run(page: str) -> list[Block]:
    return [block for block in blocks(page) if not block.not_run and block.language not in NO_CODE]


def _write_files(page: list[Block], folder: Path) -> None:
    """The blocks that are files for other blocks of their page."""
    for block in page:
        if name := FILE.match(block.text):
            (folder / name[1]).write_text(block.text)


def _check_python(block: Block) -> None:
    """It compiles, and what it takes from this project is there."""
    tree = ast.parse(block.text, str(block))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("offline_core", "flows", "tasks"):
            module = importlib.import_module(node.module or "")
            for alias in node.names:
                assert hasattr(module, alias.name), f"{block}: {node.module} has no {alias.name}"
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "offline":
            assert node.attr in offline_core.__all__, f"{block}: offline.{node.attr} does not exist"


def _check_command(words: list[str], block: Block) -> None:
    """A verb, its options and its parameters are there."""
    while words and re.match(r"[A-Z_]+=", words[0]):
        words = words[1:]
    if words[:1] != ["offline"] or words[1:] == ["--help"]:
        return
    command = app.commands[words[1]]
    if {"--help", "--show-config"} & {*words}:
        return
    given = command.make_context(words[1], words[2:]).params
    if "settings" in given:
        flow = words[1].replace("-", "_")
        values = read_values(given["settings"], next(iter(given["config_files"]), None))
        for group in TABLE[flow].groups if flow in TABLE else ():
            values.pop(group, None)
        try:
            fill_in(TABLE[flow].attribute if flow in TABLE else flow, values)
        except ConfigError as error:
            pytest.fail(f"{block}: {' '.join(words)}: {error}")


def _run(words: list[str], block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    while words and (variable := re.fullmatch(r"([A-Z_]+)=(.*)", words[0])):
        monkeypatch.setenv(variable[1], variable[2])
        words = words[1:]
    match words:
        case ["export", *variables]:
            for variable_ in variables:
                monkeypatch.setenv(*variable_.split("=", 1))
        case ["offline", verb, *arguments]:
            _offline(verb, arguments, block, monkeypatch)
        case ["make", *arguments]:
            _quietly(["make", "--dry-run", "--always-make", *arguments], block, cwd=ROOT)
        case ["pip", "install", "-c", "constraints.txt", checkout] if checkout.startswith("."):
            there = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
            extras = re.findall(r"\w+", checkout)
            assert checkout == (f".[{','.join(extras)}]" if extras else ".") and set(extras) <= set(there), (
                f"{block}: {checkout}"
            )
        case ["python", *arguments]:
            _quietly([sys.executable, *arguments], block, cwd=Path.cwd())
        case []:
            pass
        case _:
            pytest.fail(f"{block}: nothing here runs {' '.join(words)!r}")


def _offline(verb: str, arguments: list[str], block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["offline", verb, *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code, f"{block}: offline {verb} {' '.join(arguments)} ended with {ended.value.code}"


def _quietly(command: list[str], block: Block, *, cwd: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "MAKEFLAGS"}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{block}: {' '.join(command)}\n{done.stdout}{done.stderr}"


def _check_yaml(block: Block) -> None:
    """Parameters of some stage, unless it says itself that it is for Kubernetes."""
    values = load_yaml(block.text)
    if "apiVersion" in values:
        return
    errors = []
    for flow in FLOWS:
        try:
            fill_in(TABLE[flow].attribute if flow in TABLE else flow, values)
            return
        except ConfigError as error:
            errors.append(str(error))
    pytest.fail(f"{block} are parameters of no stage:\n" + "\n".join(errors))
