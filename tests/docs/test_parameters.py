"""Parameters that the pages name exist."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

import pytest

from tests.docs.parameters import names

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*")


@pytest.fixture(scope="module")
def there() -> set[str]:
    return names()


def test_the_second_column_of_the_page_on_rllib_names_parameters(there: set[str]) -> None:
    rows = re.findall(r"^\|(.+?)(?<!\\)\|(.*?)\|.*\|$", (ROOT / "docs" / "rllib.md").read_text(), re.MULTILINE)
    named = {span for _, ours in rows for span in re.findall(r"`([^`]+)`", ours)}
    assert len(named) > 40
    assert not sorted(named - there)


def test_each_option_of_rllibs_offline_data_is_on_its_page() -> None:
    """Of the RLlib that is installed, read and not imported."""
    ray = importlib.util.find_spec("ray")
    assert ray is not None and ray.submodule_search_locations
    source = Path(ray.submodule_search_locations[0]) / "rllib" / "algorithms" / "algorithm_config.py"
    functions = [node for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.FunctionDef)]
    [offline_data] = [function for function in functions if function.name == "offline_data"]
    options = [argument.arg for argument in offline_data.args.kwonlyargs]
    page = (ROOT / "docs" / "rllib.md").read_text()
    assert len(options) > 30
    assert not [option for option in options if not re.search(rf"`{option}\b", page)]


@pytest.mark.parametrize(
    "page",
    [
        "tuning.md",
        "learning.md",
        "import.md",
        "prune.md",
        "record.md",
        "train-expert.md",
        "evaluate.md",
        "estimate.md",
        "decide.md",
    ],
)
def test_dotted_names_are_parameters(page: str, there: set[str]) -> None:
    groups = {name.split(".")[0] for name in there if "." in name}
    spans = re.findall(r"`([^`\n]+)`", (ROOT / "docs" / page).read_text())
    named = {
        match[0]
        for span in spans
        if (match := re.match(r"[a-z_]+\.(?!jsonl?$)[a-z_.]+(?==|$)", span)) and match[0].split(".")[0] in groups
    }
    assert not sorted(named - there)


def test_settings_of_commands_are_checked_at_all(there: set[str]) -> None:
    assert {"optimizer.batch_size", "training.optimizer.batch_size", "data.prelearners", "where", "files.compression"} <= there
    assert "optimizer.batchsize" not in there
