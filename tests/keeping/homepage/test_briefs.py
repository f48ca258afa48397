"""The cache of what small files say: a changed file is read again, and a cache that is damaged or read-only costs nothing."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from benchmarks.catalog import write_root
from offline_core.keeping.homepage import briefs
from offline_core.keeping.homepage.briefs import DEFAULT_ALGORITHMS, algorithm_of
from offline_core.keeping.homepage.listing import list_root
from offline_core.learning.algorithms.registry import AlgorithmChoice
from offline_core.learning.experts.config import ExpertConfig

OLD_NS = 1_700_000_000_000_000_000


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ten versions and two trainings with what was measured of them, written some time ago."""
    write_root(tmp_path / "runs", results=40, versions=10)
    for file in (tmp_path / "runs").rglob("*"):
        os.utime(file, ns=(OLD_NS, OLD_NS))
    monkeypatch.setattr(briefs, "LEAST_FILES", 1)
    monkeypatch.setenv("OFFLINE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "runs"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are read from now on."""
    names: list[str] = []
    read_local = briefs._read_local

    def noted(path: str) -> bytes:
        names.append(Path(path).name)
        return read_local(path)

    monkeypatch.setattr(briefs, "_read_local", noted)
    return names


def cache_of(root: Path) -> Path:
    [file] = (root.parent / "cache" / "catalogues").iterdir()
    return file


def test_a_second_list_reads_the_cache_alone_and_is_the_same(root: Path, read: list[str]) -> None:
    first = list_root(str(root))
    assert len(first.entries) == 50 and first.problems == [] and len(read) > 50
    read.clear()
    assert list_root(str(root)) == first
    assert read == [cache_of(root).name]


def test_a_file_that_changed_is_read_again(root: Path, read: list[str]) -> None:
    before = {each.name: each for each in list_root(str(root)).entries}
    [policy] = root.glob("*/bc-000000")
    file = policy / "result.json"
    values = json.loads(file.read_text())
    values.pop("checksum")
    values["result"]["metrics"]["episode_return_mean"] = 7.0
    file.write_text(json.dumps(values))
    read.clear()
    after = {each.name: each for each in list_root(str(root)).entries}
    assert read == [cache_of(root).name, "result.json"]
    name = str(policy.relative_to(root))
    assert after[name].what == "iql, mean return 7 over 20 episodes" != before[name].what
    read.clear()
    list_root(str(root))
    assert read == [cache_of(root).name, "result.json"], "it changed a moment ago, and might change again in the same tick"


def test_what_is_gone_is_not_listed_from_the_cache(root: Path) -> None:
    list_root(str(root))
    [policy] = root.glob("*/bc-000001")
    shutil.rmtree(policy)
    assert not [each for each in list_root(str(root)).entries if "bc-000001" in each.name]
    assert b"bc-000001" not in cache_of(root).read_bytes()


def test_a_damaged_file_is_told_each_time(root: Path) -> None:
    [policy] = root.glob("*/bc-000000")
    (policy / "result.json").write_text("{")
    name = str((policy / "result.json").relative_to(root))
    assert [[file for file, _ in list_root(str(root)).problems] for _ in range(2)] == [[name]] * 2


@pytest.mark.parametrize("damage", ["flip", "cut", "gone", "other"])
def test_a_cache_that_is_not_what_was_written_is_not_used(root: Path, damage: str) -> None:
    first = list_root(str(root))
    file = cache_of(root)
    data = file.read_bytes()
    at = data.index(b"mean return") + 5
    damaged = {"flip": data[:at] + b"\xff" + data[at + 1 :], "cut": data[:-9], "gone": b"", "other": b"[]\n{}"}
    file.write_bytes(damaged[damage])
    assert list_root(str(root)) == first
    assert file.read_bytes() == data, "it is written again"


@pytest.mark.skipif(os.name != "posix", reason="files have no owner that can be told")
def test_a_cache_of_another_user_is_not_believed(root: Path, read: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    list_root(str(root))
    monkeypatch.setattr(os, "geteuid", lambda: os.stat(root).st_uid + 1)
    read.clear()
    assert len(list_root(str(root)).entries) == 50
    assert cache_of(root).name not in read and len(read) > 50


def test_without_a_home_there_is_no_cache(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OFFLINE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    monkeypatch.chdir(root.parent)
    assert len(list_root(str(root)).entries) == 50
    assert [file.name for file in root.parent.iterdir()] == ["runs"]


@pytest.mark.parametrize(
    "change", [{"parents": [{"uri": 5}]}, {"environment": {"id": []}}, {"weights_sha256": [1], "metrics": {}}]
)
def test_a_file_with_other_values_than_ours_is_a_problem(root: Path, change: dict[str, object]) -> None:
    [file] = root.glob("*/bc-000000/best/policy.json")
    values = json.loads(file.read_text())
    values.pop("checksum", None)
    file.write_text(json.dumps(values | change))
    [(name, why)] = list_root(str(root)).problems
    assert (name, "not what this package writes" in why) == (str(file.relative_to(root)), True)


def test_a_cache_that_cannot_be_written_is_done_without(root: Path) -> None:
    (root.parent / "cache").write_text("a file in the way")
    assert len(list_root(str(root)).entries) == 50


def test_a_small_root_leaves_no_cache(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("OFFLINE_CACHE", str(root.parent / "cache"))
    list_root(str(root))
    assert not (root.parent / "cache").exists()


def test_algorithms_that_parameters_do_not_name_are_those_of_the_configs() -> None:
    assert {"expert": ExpertConfig().algorithm, "training": AlgorithmChoice().algorithm} == DEFAULT_ALGORITHMS


def test_an_algorithm_is_named_whatever_the_parameters_say_of_it() -> None:
    own = AlgorithmChoice.model_validate({"algorithm": {"path": "examples.loss:WeightedCloning"}}).model_dump(mode="json")
    assert algorithm_of(own, "training") == "examples.loss:WeightedCloning"
    assert algorithm_of({"algorithm": "iql"}, "training") == "iql"
    assert (algorithm_of({}, "training"), algorithm_of({}, "expert"), algorithm_of({})) == ("bc", "ppo", "")
