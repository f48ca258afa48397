"""Code that parameters name: imported, made, and told apart by what is in its file."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from offline_core.data.datasets.manifest import Operation
from offline_core.data.environments.vector_env import spaces_of
from offline_core.errors import ConfigError
from offline_core.policies.config import NetworkConfig
from offline_core.runtime import user_code as user_code
from offline_core.runtime.config import EnvironmentSpec
from offline_core.runtime.user_code import UserCode, code_digests

SOURCE = """
class Scale:
    def __init__(self, given, *, factor=1):
        self.product = given * factor

def clip(values, *, high):
    return [min(value, high) for value in values]

number = 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "someones_code.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "someones_code", raising=False)
    monkeypatch.delitem(user_code._IMPORTED, "someones_code", raising=False)
    return tmp_path / "someones_code.py"


def test_a_class_is_made_and_a_function_keeps_its_arguments(module: Path) -> None:
    assert UserCode(path="someones_code:Scale", arguments={"factor": 4}).make("thing", 3).product == 12
    assert UserCode(path="someones_code:clip", arguments={"high": 2}).make("thing", "unused")([1, 2, 3]) == [1, 2, 2]


@pytest.mark.parametrize(
    ("path", "arguments", "message"),
    [
        ("someones_code:Missing", {}, r"The connector 'someones_code:Missing' cannot be imported: .*folder the current one\?"),
        ("no_such_package.at_all:Thing", {}, "cannot be imported: ModuleNotFoundError"),
        ("someones_code:Scale", {"size": 1}, "The connector someones_code:Scale cannot be made with size: .*size"),
        ("someones_code:clip", {"low": 1}, "cannot be made with low: .*low"),
        ("someones_code:number", {}, "cannot be made with no arguments: .*3 is not a callable"),
    ],
)
def test_what_cannot_be_made_is_told(module: Path, path: str, arguments: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        UserCode(path=path, arguments=arguments).make("connector", 1)


@pytest.mark.parametrize("path", ["someones_code", "someones_code.Scale", "a b:c", ""])
def test_a_path_has_a_colon(path: str) -> None:
    with pytest.raises(ValidationError, match=re.escape("should match pattern")):
        UserCode(path=path)


def test_a_changed_file_is_another_operation(module: Path) -> None:
    config = UserCode(path="someones_code:Scale")
    before = Operation.of("stage", config)
    assert before == Operation.of("stage", config)
    module.write_text(SOURCE + "# changed\n")
    assert before.code.keys() == Operation.of("stage", config).code.keys() == {"someones_code:Scale"}
    assert before != Operation.of("stage", config)


@pytest.mark.parametrize("folder", [False, True])
def test_a_changed_file_that_an_argument_names_is_another_operation(module: Path, tmp_path: Path, folder: bool) -> None:
    place = tmp_path / "words"
    file = place / "vocabulary.txt" if folder else place
    file.parent.mkdir(exist_ok=True)
    file.write_text("cat dog")
    config = UserCode(
        path="someones_code:Scale", arguments={"sizes": [{"of": str(place)}, "medium", "a" * 5000, "\0"], "factor": 2}
    )
    before = Operation.of("stage", config)
    assert before.code.keys() == {"someones_code:Scale", str(place)}
    assert before == Operation.of("stage", config)
    if folder:
        (place / "_evaluations").mkdir()
        (place / "_evaluations" / "1.json").write_text("{}")
        assert before == Operation.of("stage", config), "hidden files do not count"
    file.write_text("cat dog bird")
    assert before != Operation.of("stage", config)


@pytest.mark.parametrize("text", ["", ".", "/", "..", "//"])
def test_texts_that_happen_to_be_folders_name_no_files(module: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Or else a separator would bring all files of the machine into it, and an empty text all that lies around."""
    monkeypatch.chdir(module.parent)
    assert code_digests(UserCode(path="someones_code:Scale", arguments={"separator": text})).keys() == {"someones_code:Scale"}


def test_an_environment_that_changed_since_it_was_imported_is_refused(module: Path) -> None:
    module.write_text('import gymnasium\ngymnasium.register("Someones-v0", "gymnasium.envs.classic_control:CartPoleEnv")\n')
    environment = EnvironmentSpec(id="someones_code:Someones-v0")
    spaces_of(environment)
    code_digests(environment)
    module.write_text("# changed\n")
    with pytest.raises(ConfigError, match=r"The file of someones_code:Someones-v0 was changed"):
        code_digests(environment)


def test_a_file_that_changed_since_it_was_imported_is_refused(module: Path) -> None:
    """What runs is not what the file says."""
    config = UserCode(path="someones_code:Scale")
    config.make("thing", 3)
    code_digests(config)
    module.write_text(SOURCE + "# changed\n")
    with pytest.raises(ConfigError, match=r"The file of someones_code:Scale was changed .*start a new process"):
        code_digests(config)


def test_values_of_arguments_are_not_repeated(module: Path) -> None:
    with pytest.raises(ConfigError) as told:
        UserCode(path="someones_code:Scale", arguments={"password": "hunter2"}).make("thing", 1)
    assert "hunter2" not in str(told.value)


def test_the_script_that_runs_is_refused() -> None:
    with pytest.raises(ConfigError, match="move it to a file"):
        UserCode(path="__main__:thing").make("connector")


def test_code_is_found_wherever_it_is_named(module: Path) -> None:
    assert code_digests(NetworkConfig(module="someones_code:Scale")).keys() == {"someones_code:Scale"}
    assert code_digests(EnvironmentSpec(id="someones_code:Own-v0")).keys() == {"someones_code:Own-v0"}
    assert code_digests(EnvironmentSpec(id="CartPole-v1")) == {}
    assert code_digests(UserCode(path="no_such_package:Thing")) == code_digests(UserCode(path="sys:path")) == {}
