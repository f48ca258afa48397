"""Sweeps of small trainings: the runs are those of the training itself, and only what is missing is made."""

from __future__ import annotations

import multiprocessing
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import offline_core as offline
from offline_core.data.environments.vector_env import spaces_of
from offline_core.data.episodes import Episode
from offline_core.data.store.location import Location
from offline_core.door import candidates_of
from offline_core.errors import BusyError, ConfigError, DatasetNotFoundError, SweepError
from offline_core.judging.sweeps.config import SweepConfig
from offline_core.judging.sweeps.result import SweepResult
from offline_core.judging.sweeps.runs import asked_runs
from offline_core.judging.sweeps.settings import settings_of
from offline_core.judging.sweeps.statistics import expected_best
from offline_core.judging.sweeps.sweep import enforce, sweep
from offline_core.learning.train import train
from offline_core.policies.manifest import read_policy_manifest
from offline_core.runtime.config import EnvironmentSpec, parse
from tests.learning.datasets import dataset_of
from tests.learning.test_train import balancing_episodes

TRAINING = {
    "network": {"hidden_sizes": [16]},
    "optimizer": {"batch_size": 256, "max_epochs": 2, "learning_rate": 0.01, "updates_per_iteration": 4},
    "evaluation": {"episodes": 3, "location": "process", "target_return": 501.0},
}
SWEEP = {
    "training": TRAINING,
    "grid": {"algorithm": ["bc", "marwil"], "marwil.beta": [1.0, 3.0]},
    "seeds": 2,
    "parallel": 1,
    "resamples": 100,
}
"""Three settings, six runs."""
DYING = {"path": "tests.judging.sweeps.dying:Dying"}


def run_sweep(data: str, output: Path, **values: Any) -> SweepResult:
    return sweep(parse(SweepConfig, SWEEP | values), dataset=data, output=str(output))


def weights(result: SweepResult) -> dict[tuple[str, int], str]:
    """Hashes of the policies that were scored."""
    return {
        (setting.name, run.seed): read_policy_manifest(run.checkpoint).weights_sha256
        for setting in result.settings
        for run in setting.runs
    }


def written(output: Path) -> dict[str, int]:
    """When the result of each run was written."""
    return {path.parent.as_posix(): path.stat().st_mtime_ns for path in output.glob("runs/*/*/result.json")}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return dataset_of(tmp_path_factory.mktemp("data"), balancing_episodes())


def test_all_runs_learn_from_the_version_of_an_address(data: str, tmp_path: Path) -> None:
    settings = settings_of(parse(SweepConfig, SWEEP))
    asked = asked_runs(settings, dataset=f"{data}@1", output=str(tmp_path / "sweep"), version=None)
    datasets = [planned.run.dataset for planned in asked]
    assert [(dataset.uri, dataset.version) for dataset in datasets] == [(data, 1)] * len(settings)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of no environment."""
    return dataset_of(tmp_path_factory.mktemp("alone"), balancing_episodes(), environment=None)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory, data: str) -> tuple[Path, SweepResult]:
    output = tmp_path_factory.mktemp("swept")
    return output, run_sweep(data, output)


def test_each_run_is_that_of_the_training_itself(tmp_path: Path, data: str, swept: tuple[Path, SweepResult]) -> None:
    _, result = swept
    assert {setting.name for setting in result.settings} == {
        "algorithm=bc",
        "algorithm=marwil, marwil.beta=1",
        "algorithm=marwil, marwil.beta=3",
    }
    (setting,) = (each for each in result.settings if each.name == "algorithm=marwil, marwil.beta=3")
    values = TRAINING | {"algorithm": "marwil", "marwil": {"beta": 3.0}, "seed": 1}
    one = train(parse(offline.TrainingConfig, values), dataset=data, output=str(tmp_path / "one"))
    assert weights(result)[setting.name, 1] == read_policy_manifest(one.last_checkpoint).weights_sha256
    run = setting.runs[1]
    assert (run.score, run.curve, run.updates) == (one.curve[-1][1], one.curve, one.updates)
    assert run.checkpoint.endswith("/1/last") and run.checkpoint.startswith(setting.folder)


def test_settings_are_ranked_and_their_statistics_are_of_their_runs(swept: tuple[Path, SweepResult]) -> None:
    _, result = swept
    assert result.score == "last_return" and result.failures == []
    values = [setting.interquartile_mean for setting in result.settings]
    assert values == sorted(values, reverse=True)
    for setting in result.settings:
        assert setting.mean == setting.interquartile_mean == np.mean(setting.scores)
        assert setting.low == min(setting.scores) and setting.high == max(setting.scores), "two runs, each drawn twice"
        assert [updates for updates, *_ in setting.curve] == [4, 8, 12, 16]
        assert setting.curve[-1][1] == pytest.approx(setting.mean)
    best = max(result.settings[0].runs, key=lambda run: run.score)
    assert result.best == result.checkpoint == best.checkpoint
    assert candidates_of([result, "other"]) == [result.best, *result.checkpoints[1:], "other"]
    assert all(uri.startswith(f"{each.folder}/") for uri, each in zip(result.checkpoints, result.settings, strict=True))
    marwil = [score for setting in result.settings if setting.algorithm == "marwil" for score in setting.scores]
    assert result.expected_best["marwil"] == pytest.approx(expected_best(np.array(marwil)))
    assert [*map(len, result.expected_best.values())] in ([2, 4], [4, 2])


def test_the_result_is_a_table(swept: tuple[Path, SweepResult]) -> None:
    _, result = swept
    table = result.table()
    assert table.columns == [
        "algorithm",
        "marwil.beta",
        "runs",
        "mean",
        "interquartile_mean",
        "low",
        "high",
        "folder",
    ]
    assert table["mean"].to_list() == [setting.mean for setting in result.settings]
    betas = {row["algorithm"]: row["marwil.beta"] for row in table.iter_rows(named=True)}
    assert betas["bc"] is None and betas["marwil"] in (1.0, 3.0)
    for shown in (repr(result), str(result)):
        assert shown.startswith("SweepResult(Compared: 3 settings by last return; the best is ") and "\n" not in shown
    assert "interquartile mean" in result._repr_html_() and "marwil" in result._repr_html_()
    assert result.parameters == result.settings[0].parameters


def test_a_sweep_is_reused_and_more_settings_and_seeds_make_only_what_is_missing(
    tmp_path: Path, data: str, swept: tuple[Path, SweepResult]
) -> None:
    output, result = swept
    before = written(output)
    again = run_sweep(data, output)
    assert again.reused and again.settings == result.settings
    more = run_sweep(data, output, seeds=[0, 1, 5], grid={"marwil.beta": [3.0, 1.0, 2.0], "algorithm": ["marwil"]})
    assert not more.reused and {len(setting.runs) for setting in more.settings} == {3}
    after = written(output)
    assert {path: after[path] for path in before} == before and len(after) == len(before) + 2 + 3
    assert {key: digest for key, digest in weights(more).items() if key in weights(result)}.items() <= weights(result).items()
    shutil.rmtree(next(iter(before)))
    assert not run_sweep(data, output).reused, "a run is missing"
    assert written(output).keys() == after.keys()


@pytest.mark.slow
def test_a_sweep_that_is_killed_goes_on_where_it_was(tmp_path: Path, data: str) -> None:
    """In the second of three settings, after the state of its fourth update."""
    (tmp_path / "marks").mkdir()
    grid = {"algorithm": ["bc", DYING | {"arguments": {"folder": str(tmp_path / "marks")}}, "marwil"]}
    process = multiprocessing.get_context("spawn").Process(
        target=run_sweep, args=(data, tmp_path / "out"), kwargs={"grid": grid}
    )
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    before = written(tmp_path / "out")
    assert len(before) == 2, "both seeds of the first setting"
    result = run_sweep(data, tmp_path / "out", grid=grid)
    after = written(tmp_path / "out")
    assert len(after) == 6 and {path: after[path] for path in before} == before
    assert weights(result) == weights(run_sweep(data, tmp_path / "whole", grid=grid))


def test_a_run_that_fails_ends_no_other_one(tmp_path: Path, data: str) -> None:
    config = parse(SweepConfig, SWEEP | {"grid": {"algorithm": [DYING, "bc"]}})
    result = sweep(config, dataset=data, output=str(tmp_path))
    assert [setting.name for setting in result.settings] == ["algorithm=bc"] and len(result.settings[0].runs) == 2
    assert [failure.seed for failure in result.failures] == [0, 1]
    with pytest.raises(SweepError) as raised:
        enforce(result, config)
    text = str(raised.value)
    assert text.startswith("2 of 4 runs failed; call it again to try them once more, as the others are reused:\n")
    assert "Dying" in text and ", seed 1: " in text and "nothing was divided" in text
    assert not raised.value.may_pass
    assert not sweep(config, dataset=data, output=str(tmp_path)).reused


def test_a_sweep_of_which_nothing_is_left_is_an_error_and_one_that_is_busy_may_pass(tmp_path: Path, data: str) -> None:
    with pytest.raises(SweepError, match="2 of 2 runs failed"):
        run_sweep(data, tmp_path / "failed", grid={"algorithm": [DYING]})
    (setting,) = settings_of(parse(SweepConfig, SWEEP | {"grid": {"algorithm": ["bc"]}}))
    folder = Location.of(str(tmp_path / "busy" / "runs" / setting.digest / "1"))
    with folder.make_folder().locked():
        result = run_sweep(data, tmp_path / "busy", grid={"algorithm": ["bc"]})
    assert len(result.settings[0].runs) == 1 and result.settings[0].low is None
    with pytest.raises(SweepError, match=r"seed 1: BusyError: Another run is writing to ") as raised:
        enforce(result, parse(SweepConfig, SWEEP))
    assert raised.value.may_pass


def test_two_sweeps_cannot_have_one_output_at_once(tmp_path: Path, data: str) -> None:
    with Location.of(str(tmp_path)).make_folder().locked(), pytest.raises(BusyError):
        run_sweep(data, tmp_path)


def test_best_returns_are_those_of_the_best_policies(tmp_path: Path, data: str, swept: tuple[Path, SweepResult]) -> None:
    output, _ = swept
    result = run_sweep(data, output, score="best_return")
    for setting in result.settings:
        for run in setting.runs:
            assert run.score == max(value for _, value in run.curve) and run.checkpoint.endswith("/best")


def test_without_an_environment_the_lowest_held_out_loss_is_best(tmp_path: Path, alone: str) -> None:
    other = dataset_of(tmp_path / "other", balancing_episodes(4, seed=7), environment=None)
    training = TRAINING | {"evaluation": {"held_out": other}}
    result = run_sweep(alone, tmp_path / "out", training=training, grid={"optimizer.learning_rate": [1e-4, 0.01]})
    assert result.score == "held_out_loss" and result.settings[0].parameters == {"optimizer.learning_rate": 0.01}
    assert result.settings[0].mean < result.settings[1].mean
    best = min(result.settings[0].runs, key=lambda run: run.score)
    assert result.checkpoint == best.checkpoint and best.score == min(value for _, value in best.curve)
    values = result.expected_best["bc"]
    assert values == sorted(values, reverse=True) and values[-1] == best.score


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"grid": {"algorithm": ["bc", "sac"]}},
            r"Nothing was started, as 1 of the settings cannot be trained:\nalgorithm=sac: .*Discrete",
        ),
        ({"grid": {"network.recurrent": [None, "gru"]}, "training": {"algorithm": "iql"}}, "network.recurrent=gru: IQL values"),
        ({"grid": {"optimizer.networks": [{"actor": {}}, {}]}}, "networks names actor"),
        (
            {"training": {"evaluation": {"play": False}}},
            "nothing to compare the runs by \\(last_return: the policy is not played",
        ),
        ({"training": {"evaluation": {"environment": {"id": "Pendulum-v1"}}}}, "Pendulum-v1 has"),
        ({"training": {"evaluation": {"environment": {"id": "Robot-v0"}}}}, "Robot-v0"),
        ({"score": "held_out_loss"}, "the policy is played, so the best one is not that of the lowest loss"),
        ({"score": "estimate"}, "no data to estimate from is named.* Split first .*estimate_on=.*-split/held_out"),
    ],
)
def test_what_cannot_be_trained_or_compared_is_named_before_anything_starts(
    tmp_path: Path, data: str, values: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        run_sweep(data, tmp_path / "out", **values)
    assert not list((tmp_path / "out").rglob("*.json"))


def test_losses_that_do_not_compare_are_refused(tmp_path: Path, alone: str) -> None:
    held_out = {"evaluation": {"held_out": alone}}
    with pytest.raises(ConfigError, match=r"held_out_loss: the losses of marwil depend on values that are learned, too"):
        run_sweep(alone, tmp_path, training=TRAINING | held_out, score="held_out_loss")
    pendulum = spaces_of(EnvironmentSpec(id="Pendulum-v1"))
    episode = Episode(
        eps_id="a", observations=np.zeros((4, 3), np.float32), actions=np.zeros((3, 1), np.float32), rewards=np.ones(3)
    )
    box = dataset_of(tmp_path / "box", [episode], spaces=pendulum, environment=None)
    losses = {"grid": {"bc.squared_error": [True, False]}, "training": TRAINING | {"evaluation": {"held_out": box}}}
    with pytest.raises(ConfigError, match="the settings have different losses"):
        run_sweep(box, tmp_path, **losses, score="held_out_loss")
    with pytest.raises(DatasetNotFoundError, match="no dataset at"):
        run_sweep(str(tmp_path / "nothing"), tmp_path)


def test_the_function_behind_the_door(tmp_path: Path, data: str) -> None:
    result = offline.sweep(
        data, output=tmp_path / "out", training=TRAINING, grid={"algorithm": ["bc"]}, seeds=1, seed=4, parallel=1
    )
    assert [run.seed for run in result.settings[0].runs] == [4]
    assert offline.evaluate(result, episodes=2).checkpoint == result.best
    with pytest.raises(SweepError, match="nothing was divided"):
        offline.sweep(data, output=tmp_path / "out", training=TRAINING, grid={"algorithm": ["bc", DYING]}, seeds=1, parallel=1)
