"""A folder of the wrong kind is named for what it is, and a run's folder stands for the policy that it came to."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pytest

from offline_core.data.datasets.dataset import open_committed, open_dataset
from offline_core.data.datasets.folder_kind import RESULT_KINDS, folder_at, kind_of_result
from offline_core.errors import CheckpointError, DatasetNotFoundError
from offline_core.keeping.stored_results import MODELS
from offline_core.policies.manifest import find_policy
from offline_core.runtime.stage import load

STORED = Path(__file__).parent.parent / "data" / "stored" / "format-2"


@pytest.fixture
def runs(tmp_path: Path, cartpole_policy: str) -> Path:
    """A dataset, a training, a decision and an outlier ranking, as they are left."""
    root = tmp_path / "runs"
    shutil.copytree(cartpole_policy, root / "marwil" / "best")
    shutil.copytree(STORED / "recording", root / "recording")
    results = {
        "marwil": {"losses": [], "epochs": 1.0, "dataset": {"uri": str(root / "recording")}},
        "decision": {"verdict": "promote", "candidates": [], "checkpoint": str(root / "marwil" / "best")},
        "outliers": {"scores": "x.parquet", "threshold": 3.0},
    }
    for name, result in results.items():
        (root / name).mkdir(exist_ok=True)
        stored = {"place": str(root / name / "result.json"), "identity": "0", "made": {}, "result": result}
        (root / name / "result.json").write_text(json.dumps(stored))
    (root / "outliers" / "scores.parquet").write_bytes(b"of the ranking, and no dataset")
    return root


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("marwil", "marwil is the folder of a training, not a dataset. Give a dataset, such as {root}/recording, from which"),
        ("marwil/best", "best is a policy, not a dataset. Give "),
        ("outliers", "outliers is the folder of an outlier ranking, not a dataset. Give the folder of a dataset."),
        ("", "runs is a folder of several, and no dataset itself. Give one of those in it: {root}/recording."),
    ],
)
def test_what_is_no_dataset_is_named_with_what_to_give_instead(runs: Path, name: str, told: str) -> None:
    for opened in (open_committed, open_dataset):
        with pytest.raises(DatasetNotFoundError) as caught:
            opened(str(runs / name))
        assert told.format(root=runs) in str(caught.value)
        assert ("take the dataset before the policies" in str(caught.value)) == name.startswith("marwil")


@pytest.mark.parametrize("name", ["marwil", "decision"])
def test_the_folder_of_a_run_stands_for_its_policy(runs: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "offline_core")
    best = str(runs / "marwil" / "best")
    assert find_policy(str(runs / name)) == find_policy(best)
    assert f"{runs / name} is the folder of a" in caplog.text and f"its policy {best} is taken" in caplog.text


def test_a_sweep_that_was_moved_stands_for_the_policy_that_moved_with_it(runs: Path) -> None:
    result = {"settings": [], "score": "x", "checkpoint": "/elsewhere/sweep/s/0/best"}
    shutil.copytree(runs / "marwil" / "best", runs / "sweep" / "s" / "0" / "best")
    stored = {"place": "/elsewhere/sweep/result.json", "identity": "0", "made": {}, "result": result}
    (runs / "sweep" / "result.json").write_text(json.dumps(stored))
    assert find_policy(str(runs / "sweep"))[0] == str(runs / "sweep/s/0/best")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("recording", "recording is a dataset, not a policy. Train one from it, 'offline train {root}/recording'"),
        (
            "outliers",
            "outliers is the folder of an outlier ranking, not a policy. Give the folder of a policy, or of a training.",
        ),
        ("", "runs is a folder of several, and no policy itself. Give one of those in it: {root}/marwil/best."),
        ("nowhere", "There is no policy at {root}/nowhere"),
        (
            "outliers/scores.parquet",
            "scores.parquet is a file, and a policy is a folder. If it is a log, import it, 'offline import",
        ),
    ],
)
def test_what_is_no_policy_is_named_with_what_to_give_instead(runs: Path, name: str, told: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        find_policy(f"{runs}/{name}".rstrip("/"))
    assert told.format(root=runs) in str(caught.value)


def test_every_kind_of_result_is_known_by_its_fields() -> None:
    assert MODELS.keys() == RESULT_KINDS.keys()
    for kind, model in MODELS.items():
        assert kind_of_result(dict.fromkeys(load(model).model_fields)) == kind


def test_a_folder_of_other_things_is_nothing_of_ours(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text("[1, 2")
    (tmp_path / "notes.txt").write_text("x")
    assert folder_at(str(tmp_path)) is None and folder_at(str(tmp_path / "nowhere")) is None
