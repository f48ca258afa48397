"""The series of policies that a training keeps, by each rule, and after it was killed."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from offline_core.errors import ConfigError
from offline_core.learning import trainer
from offline_core.learning.config import TrainingConfig
from offline_core.learning.monitor import wanted
from offline_core.learning.result import TrainingResult
from offline_core.learning.train import train
from offline_core.learning.trainer_config import KeepConfig
from offline_core.policies.manifest import read_policy_manifest
from offline_core.runtime.config import parse
from tests.cases import slow_but
from tests.learning.datasets import dataset_of
from tests.learning.test_monitor import RETURNS, Behind
from tests.learning.test_resume import interrupted
from tests.learning.test_train import balancing_episodes

ITERATIONS = [5, 10, 15, 20, 25, 30, 35, 40]
"""Of 8 iterations; `RETURNS` has the return after each."""
SETTINGS: dict[str, Any] = {
    "network": {"hidden_sizes": [8]},
    "optimizer": {"updates_per_iteration": 5, "batch_size": 100, "max_epochs": 2, "learning_rate": 0.01},
    "evaluation": {"play": False},
    "data": {"prelearners": 0},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return dataset_of(tmp_path_factory.mktemp("data"), balancing_episodes())


def run_train(data: str, output: Path, **settings: Any) -> TrainingResult:
    return train(parse(TrainingConfig, SETTINGS | settings), dataset=data, output=str(output))


def on_disk(output: Path) -> dict[int, str]:
    """Hashes of the weights in the folder of a series, by updates."""
    folders = output.glob("iterations/*")
    return {int(folder.name): read_policy_manifest(str(folder)).weights_sha256 for folder in sorted(folders)}


@pytest.mark.parametrize(
    ("keep", "kept"),
    [
        ({"every_iterations": 3}, [15, 30]),
        ({"last": 2}, [35, 40]),
        ({"best": 2}, [25, 30]),
        ({"every_iterations": 3, "last": 1}, [30]),
        ({"every_iterations": 2, "last": 1, "best": 3}, [10, 25, 30, 40]),
    ],
    ids=str,
)
def test_each_rule_and_their_union(keep: dict[str, int], kept: list[int]) -> None:
    scores = list(zip(ITERATIONS, RETURNS, strict=True))
    assert sorted(wanted(KeepConfig(**keep), ITERATIONS, scores, [40])) == kept


def test_of_equals_the_first_is_better_and_nan_is_never_good() -> None:
    keep = KeepConfig(best=2)
    assert wanted(keep, ITERATIONS, [(5, float("nan")), (10, 3.0), (15, 3.0), (20, 3.0)], [40]) == {10, 15}


def test_what_is_wanted_in_the_end_was_wanted_all_along() -> None:
    """Otherwise it would have been deleted before."""
    keep = KeepConfig(every_iterations=2, last=2, best=2)
    scores = list(zip(ITERATIONS, RETURNS, strict=True))
    steps = [wanted(keep, ITERATIONS[:n], scores[:n], [ITERATIONS[n - 1]]) for n in range(1, 9)]
    for before, after in itertools.pairwise(steps):
        new = after - before
        assert new <= {max(after)}, "only the present policy comes"


def test_a_group_that_keeps_nothing_is_refused() -> None:
    with pytest.raises(ValidationError, match="set every_iterations, last or best"):
        KeepConfig()


def test_the_best_need_something_to_go_by(tmp_path: Path, data: str) -> None:
    with pytest.raises(ConfigError, match=r"keep\.best has nothing to go by"):
        run_train(data, tmp_path / "out", keep={"best": 1})
    assert not (tmp_path / "out").exists()


def test_the_folder_has_what_the_result_lists_with_updates_and_held_out_loss(tmp_path: Path, data: str) -> None:
    keeping = {"evaluation": {"play": False, "held_out": data}, "keep": {"every_iterations": 3, "best": 1}}
    result = run_train(data, tmp_path / "out", **keeping)
    losses = dict(result.held_out_losses)
    assert [each.updates for each in result.kept] == [15, 30, 40], "it falls throughout"
    assert [each.checkpoint for each in result.kept] == [f"{tmp_path}/out/iterations/{u:09d}" for u in (15, 30, 40)]
    assert all(each.metrics == {"held_out_loss": losses[each.updates]} for each in result.kept)
    assert read_policy_manifest(result.kept[0].checkpoint).metrics["updates"] == 15
    hashes = on_disk(tmp_path / "out")
    assert len(set(hashes.values())) == 3
    assert hashes[40] == read_policy_manifest(result.last_checkpoint).weights_sha256


def test_the_last_policy_is_measured_and_kept_where_the_interval_left_it_out(tmp_path: Path, data: str) -> None:
    evaluation = {"play": False, "held_out": data, "interval_iterations": 3}
    result = run_train(data, tmp_path / "out", evaluation=evaluation, keep={"best": 1})
    assert [updates for updates, _ in result.held_out_losses] == [15, 30, 40]
    assert [each.updates for each in result.kept] == [40] and list(on_disk(tmp_path / "out")) == [40]


def test_a_series_does_not_change_what_is_learned_and_is_another_operation(tmp_path: Path, data: str) -> None:
    plain, keeping = run_train(data, tmp_path / "plain"), run_train(data, tmp_path / "keeping", keep={"last": 2})
    one, other = (read_policy_manifest(each.last_checkpoint) for each in (plain, keeping))
    assert one.weights_sha256 == other.weights_sha256
    assert "keep" not in one.operation.config and other.operation.config["keep"]["last"] == 2
    assert not plain.kept and not (tmp_path / "plain" / "iterations").exists()


def test_a_series_is_of_this_run_and_part_of_what_is_found_again(tmp_path: Path, data: str) -> None:
    for every in (1, 3):
        result = run_train(data, tmp_path / "out", keep={"every_iterations": every})
        assert list(on_disk(tmp_path / "out")) == [each.updates for each in result.kept], "none of the run before"
    assert run_train(data, tmp_path / "out", keep={"every_iterations": 3}).reused
    shutil.rmtree(result.kept[0].checkpoint)
    again = run_train(data, tmp_path / "out", keep={"every_iterations": 3})
    assert not again.reused and read_policy_manifest(again.kept[0].checkpoint)


@pytest.mark.parametrize(
    ("evaluation", "kept"),
    [({}, [10, 15, 20, 25, 30, 40]), ({"patience": 2}, [10, 15, 20]), ({"target_return": 11.5}, [5, 10])],
    ids=["to the end", "patience", "target"],
)
def test_how_far_evaluations_are_behind_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str, evaluation: dict[str, Any], kept: list[int]
) -> None:
    """Those of after the end are gone; those that were the latest at the end are still there, with their returns."""
    monkeypatch.setattr(trainer, "Evaluations", Behind)
    keep = {"last": 2, "best": 1} if evaluation else {"every_iterations": 2, "last": 3, "best": 4}
    found = []
    for lag in (0, 1, 2):
        monkeypatch.setattr(Behind, "lag", lag)
        result = run_train(data, tmp_path / str(lag), keep=keep, evaluation={"target_return": 99.0} | evaluation)
        assert [each.updates for each in result.kept] == list(on_disk(tmp_path / str(lag)))
        returns = dict(zip(ITERATIONS, RETURNS, strict=True))
        assert all(each.metrics["episode_return_mean"] == returns[each.updates] for each in result.kept)
        found.append(on_disk(tmp_path / str(lag)))
    assert list(found[0]) == kept
    assert found[0] == found[1] == found[2]


PLAYED = {"episodes": 3, "target_return": 501, "location": "process"}


@pytest.mark.parametrize("evaluation", slow_but(["played", "held out"], "held out"))
def test_a_run_that_ends_half_way_leaves_the_same_series(tmp_path: Path, data: str, evaluation: str) -> None:
    measured = PLAYED if evaluation == "played" else {"play": False, "held_out": data}
    settings = {"evaluation": measured, "keep": {"every_iterations": 2, "last": 2, "best": 2}}
    whole = run_train(data, tmp_path / "whole", **settings)
    for at in (12, 23, 39, None):
        interrupted(data, tmp_path / "broken", SETTINGS | settings, at=at)
    broken = run_train(data, tmp_path / "broken", **settings)
    assert [each.updates for each in broken.kept] == [each.updates for each in whole.kept]
    assert [each.metrics for each in broken.kept] == [each.metrics for each in whole.kept]
    assert on_disk(tmp_path / "broken") == on_disk(tmp_path / "whole")
    assert len(whole.kept) >= 3
