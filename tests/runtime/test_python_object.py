"""Objects from Python as parameters: the text that stands for them, the same in every process, and no way back from it."""

from __future__ import annotations

import functools
import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow.dataset
import pyarrow.fs
import pytest
from pydantic import ValidationError

from offline_core.data.curation.config import PruningConfig
from offline_core.data.datasets.manifest import Operation
from offline_core.data.formats.sources.opening import SourceConfig
from offline_core.learning.prelearner.connectors import ConnectorConfig
from offline_core.runtime.config import EnvironmentSpec
from offline_core.runtime.python_object import PythonObject, named
from offline_core.runtime.user_code import UserCode, code_digests

SCRIPT = """
import json, pyarrow.dataset, pyarrow.fs
from offline_core.runtime.python_object import PythonObject
STEP = 1
WORDS = {"b", "a", "c"}
def helper(x):
    return x + STEP
class Half:
    def __init__(self, by): self.by = by
    def __call__(self, steps): return helper(steps) / self.by if steps in WORDS else None
factor = 3
scale = lambda s: s * factor
objects = [Half, Half(2), scale, pyarrow.dataset.field("t") < 50, pyarrow.fs.LocalFileSystem()]
print(json.dumps([str(PythonObject.of(each)) for each in objects]))
"""


def texts(folder: Path, script: str) -> list[str]:
    file = folder / "script.py"
    file.write_text(script)
    ran = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=True)
    return [str(text) for text in json.loads(ran.stdout)]


def test_the_text_is_the_same_in_another_process_and_follows_what_code_refers_to(tmp_path: Path) -> None:
    """Whatever the order of sets there is, and the number of the line."""
    before = texts(tmp_path, SCRIPT)
    assert [text.rpartition("#")[0] for text in before] == [
        "python:__main__:Half",
        "python:__main__:Half",
        "python:__main__:<lambda>",
        "python:(t < 50)",
        "python:pyarrow._fs:LocalFileSystem",
    ]
    assert texts(tmp_path, f"# moved\n\n{SCRIPT}") == before
    after = texts(tmp_path, SCRIPT.replace("STEP = 1", "STEP = 9"))
    assert [i for i in range(5) if after[i] == before[i]] == [2, 3, 4]


def adder(by: float) -> Callable[[float], float]:
    return lambda x: x + by


def test_what_differs_has_another_text() -> None:
    first, second = (lambda x: x + 1), (lambda x: x + 2)
    field = pyarrow.dataset.field("t")
    many = [first, second, adder(1), adder(2), functools.partial(first, 1), functools.partial(first, 2), field < 50, field < 51]
    many += [field.isin(list(range(1000))), field.isin([*range(500), -1, *range(501, 1000)])]
    many += [np.arange(3), np.arange(3) + 1, np.arange(3.0), pyarrow.fs.SubTreeFileSystem("/a", pyarrow.fs.LocalFileSystem())]
    many += [fsspec.filesystem("memory"), fsspec.filesystem("local"), {"a": 1}.get, {"a": 2}.get]
    found = [str(PythonObject.of(each)) for each in many]
    assert len(set(found)) == len(many)
    assert found == [str(PythonObject.of(each)) for each in many]
    assert PythonObject.of(adder(1)) == PythonObject.of(adder(1)) != PythonObject.of(adder(2))


@dataclass(frozen=True)
class Colliding:
    """In a set, these are in the order in which they came."""

    name: str

    def __hash__(self) -> int:
        return 0


def test_the_order_of_a_set_does_not_count_when_its_items_come_again() -> None:
    a, b = Colliding("a"), Colliding("b")
    assert list({a, b}) != list({b, a})
    assert PythonObject.of([{a, b}, a]) == PythonObject.of([{b, a}, a]) != PythonObject.of([{a, b}, b])


TYPED = "class Typed:\n    limit = 1\n    def __call__(self, x): return (lambda y: y + 1)(x)\nmade = Typed"


def test_code_that_was_typed_counts_as_it_was_compiled() -> None:
    def text(typed: str) -> str:
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(typed, names)
        return str(PythonObject.of(names["made"]))

    lines = [TYPED, TYPED.replace("y + 1", "y + 2"), TYPED.replace("limit = 1", "limit = 2"), "made = lambda x: x"]
    assert len({text(typed) for typed in lines}) == 4 and text(TYPED) == text(f"\n\n{TYPED}")


def test_credentials_of_a_filesystem_do_not_count() -> None:
    def store(**arguments: str) -> str:
        return str(PythonObject.of(pyarrow.fs.S3FileSystem(region="us-east-1", **arguments)))

    mine = store(access_key="me", secret_key="hunter2", endpoint_override="http://a")
    assert mine == store(access_key="you", secret_key="hunter3", endpoint_override="http://a") and "hunter" not in mine
    assert mine != store(access_key="me", secret_key="hunter2", endpoint_override="http://b")


@pytest.mark.parametrize("value", [sqlite3.connect(":memory:"), threading.Lock(), (i for i in "ab")])
def test_what_cannot_be_told_from_others_needs_a_name(value: Any) -> None:
    with pytest.raises(ValidationError, match=r"cannot be identified: .*named\(it, \"name\"\)"):
        UserCode(path="json:dumps", arguments={"value": [value]})
    told = UserCode(path="json:dumps", arguments={"value": [named(value, "mine, 2")]}).model_dump(mode="json")
    assert told["arguments"] == {"value": ["python:mine, 2 (named)"]}


def test_what_others_can_import_is_kept_by_its_path() -> None:
    """It travels, and is the same step as by its path."""
    config = PruningConfig.model_validate({"filters": [adder]})
    assert config == PruningConfig.model_validate({"filters": [{"path": "tests.runtime.test_python_object:adder"}]})
    assert SourceConfig(format=EnvironmentSpec).format == "offline_core.runtime.config:EnvironmentSpec"  # type: ignore[arg-type]


def test_an_object_alone_is_enough_and_called_with_its_arguments() -> None:
    class Scale:
        def __init__(self, given: int, *, by: Any) -> None:
            self.product = given * by(1)

    code = UserCode.model_validate({"path": Scale, "arguments": {"by": adder(2)}})
    assert code.make("thing", 4).product == 12
    assert UserCode.model_validate(adder(2)).make("thing")(1) == 3
    assert [ConnectorConfig.model_validate(each).called for each in (Scale, {"path": adder(1), "name": "one"})] == [
        "Scale",
        "one",
    ]


def test_an_operation_says_it_as_text() -> None:
    source = SourceConfig(format="read_parquet", arguments={"filter": pyarrow.dataset.field("t") < 50, "columns": ["t"]})
    operation = Operation.of("import", source)
    assert operation.config["arguments"]["filter"].startswith("python:(t < 50)#") and operation.code == {}
    assert Operation.model_validate_json(operation.model_dump_json()) == operation
    assert code_digests(UserCode.model_validate(adder(1))) == {}


@pytest.mark.parametrize("form", [{"filters": [adder(1)]}, {"filters": [{"path": "a:b", "arguments": {"by": [adder(1)]}}]}])
def test_a_form_cannot_bring_it(form: dict[str, Any]) -> None:
    text = PruningConfig.model_validate(form).model_dump_json()
    with pytest.raises(
        ValidationError, match=r"python:\S+#\w+ stands for an object of another Python process.*package.module:Name"
    ):
        PruningConfig.model_validate_json(text)
    with pytest.raises(ValidationError, match="should match pattern"):
        PruningConfig.model_validate_json('{"filters": [{"path": "lambda episode: True"}]}')


def test_environments_are_kept_with_the_data_and_take_json() -> None:
    with pytest.raises(ValidationError, match="numbers, text, lists and dicts can be kept with the data"):
        EnvironmentSpec(id="CartPole-v1", kwargs={"reward": adder(1)})
