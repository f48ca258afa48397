"""Config files that somebody else wrote: none fills the memory, and none runs code."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

import pytest

from flows.settings import read_values
from offline_core.errors import ConfigError
from offline_core.runtime.yaml_values import MAX_BYTES

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12)
)
MERGES = "a0: &a0 {k: 1}\n" + "".join(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}]}}\n" for i in range(1, 12))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (LAUGHS, "stands for more than 100,000 values; write it without aliases"),
        (MERGES, "stands for more than 100,000 values"),
        ("a: &a [*a]", "an alias leads into itself"),
        ("a: " + "[" * 100_000, "nested too deep"),
        ("a: !!python/object/apply:os.system ['touch ran']", "could not determine a constructor for the tag"),
        ("a: !!python/name:os.system", "could not determine a constructor for the tag"),
        ("a: " + "9" * 10_000, "integer string"),
        ("a: " + "x" * MAX_BYTES, "1,048,576 are the most"),
    ],
    ids=["billion laughs", "merges", "itself", "deep", "apply", "name", "long number", "large"],
)
def test_a_hostile_config_file_is_one_message(tmp_path: Path, text: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(ConfigError, match=rf"(?s)c\.yaml is no YAML that can be read: .*{told}"):
        read_values([], str(tmp_path / "c.yaml"))
    assert [path.name for path in tmp_path.iterdir()] == ["c.yaml"]


@pytest.mark.parametrize(
    "line",
    [
        "password: hunter2: more",
        "password: 'hunter2",
        "password: *hunter2",
        "password: !hunter2 x",
        "password: @hunter2",
        "password: %hunter2",
        "password: [hunter2",
        "password: {hunter2",
        "password: &hunter2 &hunter2 x",
        'password: "\\hunter2"',
        "\tpassword: hunter2",
        "hunter2",
        "password: !hunter2's x",
    ],
)
def test_a_broken_line_is_named_and_not_repeated(tmp_path: Path, line: str) -> None:
    (tmp_path / "c.yaml").write_text(f"seed: 1\n{line}\n")
    with pytest.raises(ConfigError) as error:
        read_values([], str(tmp_path / "c.yaml"))
    told = "".join(traceback.format_exception(error.value))
    assert "hunter2" not in told and re.search(r"c\.yaml is no YAML that can be read: .* in line \d, column \d", told)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: {b: 1", "expected ',' or '}', but the file ends in line 1"),
        ("a: [1", "expected ',' or ']', but the file ends in line 1"),
        ("a: [1\nb: 3", "expected ',' or ']', but got ':' in line 2"),
        ("a: *b", "found undefined alias … in line 1"),
    ],
)
def test_signs_that_are_missing_are_named(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(ConfigError, match=re.escape(told)):
        read_values([], str(tmp_path / "c.yaml"))


def test_a_setting_that_is_none_is_not_repeated() -> None:
    with pytest.raises(ConfigError, match=r"begins with 'environment\.kwargs\.password' is not NAME=VALUE"):
        read_values(["environment.kwargs.password: hunter2"], None)
    with pytest.raises(ConfigError) as error:
        read_values(["a=1", "a.password=hunter2"], None)
    assert "hunter2" not in str(error.value)


def test_aliases_and_merges_of_moderate_size_are_read(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("a: &a {x: 1}\nb: {<<: *a, y: [*a, *a]}\n")
    assert read_values([], str(tmp_path / "c.yaml"))["b"] == {"x": 1, "y": [{"x": 1}, {"x": 1}]}


def test_a_setting_that_is_no_yaml_is_text() -> None:
    assert read_values(["a.day=2026-13-45", "a.b=[1"], None) == {"a": {"day": "2026-13-45", "b": "[1"}}
