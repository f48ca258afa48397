"""The catalogue of a root: what a file is by its name, and which dataset it belongs to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from offline_core.data.datasets import catalogue as names
from offline_core.data.datasets.catalogue import Catalogue, kind_of, open_catalogue, read_catalogue
from offline_core.data.datasets.result_cache import STATES
from offline_core.data.quality.result import CHECKS
from offline_core.data.store.location import Location
from offline_core.errors import StorageError
from offline_core.judging.decisions.result import MODEL
from offline_core.judging.estimation.clones import CLONES, SIDES
from offline_core.judging.estimation.result import ESTIMATES
from offline_core.learning.metrics import METRICS_FILE
from offline_core.policies.evaluation import EVALUATIONS
from offline_core.policies.registry import CHECKPOINTS, HISTORY
from offline_core.policies.series import SERIES

FILES = {
    "data/_versions/000001.json": "version",
    "data/_versions/last-000001": "mark",
    "data/_versions/000001.verified": "mark",
    "data/_versions/tags/last-000001": "tag",
    "data/_versions/tags/000001.json": "tag",
    "data/part-000000-0123456789ab.parquet": "other",
    "data/inner/_versions/000001.json": "version",
    "data/inner/part-000000-0123456789ab.parquet": "other",
    f"data/{CHECKS}/000001.json": "check",
    f"data/{CHECKS}/000001.md": "other",
    "run/result.json": "result",
    f"run/{METRICS_FILE}": "metrics",
    f"run/{STATES}/000000000100.json": "state",
    "run/best/policy.json": "policy",
    "run/last/policy.json": "policy",
    f"run/{SERIES}/3/policy.json": "policy",
    f"run/best/{EVALUATIONS}/0123456789abcdef.json": "evaluation",
    f"run/best/{ESTIMATES}/0123456789abcdef.json": "estimate",
    f"registry/hvac/{HISTORY}/000001.json": "move",
    f"registry/hvac/{CHECKPOINTS}/0123456789abcdef/policy.json": "policy",
    f"decision/{SIDES}/0123456789abcdef/train/_versions/000001.json": "version",
    f"decision/{MODEL}/{METRICS_FILE}": "metrics",
    ".tmp-0/run/result.json": "result",
    "theirs/notes.json": "other",
    "theirs/tags/good": "other",
}


@pytest.fixture
def root(tmp_path: Path) -> Catalogue:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return read_catalogue(Location.of(str(tmp_path)))


def test_each_file_is_what_its_name_says(root: Catalogue) -> None:
    assert {name: kind_of(name) for name in FILES} == FILES
    assert {name: kind for kind in root.by_kind for name in root.of(kind)} == {
        name: kind for name, kind in FILES.items() if kind != "other"
    }
    assert {name: state.size for name, state in root.files.items()} == {name: len(name) for name in FILES}


def test_the_time_of_a_change_is_that_of_the_disk(root: Catalogue) -> None:
    os.utime(root.location("run/result.json").path, ns=(7, 12_345_678_901))
    assert read_catalogue(root.root).files["run/result.json"].changed_ns == 12_345_678_901


def test_a_file_belongs_to_the_innermost_dataset(root: Catalogue) -> None:
    assert root.owner("data/inner/part-000000-0123456789ab.parquet") == "data/inner"
    assert root.owner("data/part-000000-0123456789ab.parquet") == "data"
    assert root.owner("run/result.json") is None
    assert "part-000000-0123456789ab.parquet" in root.by_dataset["data"]
    assert not [name for name in root.by_dataset["data"] if name.startswith("inner/")]


def test_what_people_look_at_leaves_out_what_others_need_for_their_work(root: Catalogue) -> None:
    assert root.shown("version") == ["data/_versions/000001.json", "data/inner/_versions/000001.json"]
    assert root.shown("policy") == ["run/best/policy.json"]
    assert root.shown("result") == ["run/result.json"]
    assert root.shown("metrics") == [f"run/{METRICS_FILE}"]
    assert set(names._OF_DECISIONS) == {SIDES, MODEL, CLONES}


def test_the_newest_of_each_kind_come_with_what_is_in_the_folder_above(tmp_path: Path) -> None:
    for number in range(4):
        for name in ("result.json", "best/policy.json", f"best/{EVALUATIONS}/0a.json"):
            file = tmp_path / f"run-{number}" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
            os.utime(file, (number, number))
    (tmp_path / "data/_versions").mkdir(parents=True)
    for version in (1, 2):
        (tmp_path / f"data/_versions/{version:06d}.json").touch()
    root = read_catalogue(Location.of(str(tmp_path)))
    some = root.newest(2)
    assert some.shown("result") == ["run-2/result.json", "run-3/result.json"]
    assert some.shown("policy") == ["run-2/best/policy.json", "run-3/best/policy.json"]
    assert some.shown("version") == root.shown("version")
    assert (some.left_out, some.files) == (6, root.files)
    assert (root.newest(4).left_out, root.newest(4).by_kind) == (0, root.by_kind)


def test_pipes_and_folders_are_no_files(root: Catalogue) -> None:
    os.mkfifo(root.location("theirs/result.json").path)
    os.mkfifo(root.location("pipe").path)
    os.symlink("nowhere", root.location("link").path)
    assert read_catalogue(root.root).files == root.files


def test_a_root_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    assert read_catalogue(Location.of(str(tmp_path / "nowhere"))).files == {}
    with pytest.raises(StorageError, match="There is no folder"):
        open_catalogue(str(tmp_path / "nowhere"))
