"""What Optuna makes of the scores of a sweep, and that nothing but the runs has to be kept for it."""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from offline_core.errors import ConfigError
from offline_core.judging.sweeps import settings
from offline_core.judging.sweeps.config import SweepConfig
from offline_core.judging.sweeps.search import Search
from offline_core.judging.sweeps.settings import Setting, settings_of
from offline_core.judging.sweeps.sweep import sweep
from offline_core.runtime.config import parse
from tests.judging.sweeps.test_sweep import TRAINING, written
from tests.learning.datasets import dataset_of
from tests.learning.test_train import balancing_episodes

RATE = "optimizer.learning_rate"
RATES = {RATE: {"low": 1e-5, "high": 1e-1, "log": True}}


def config(**values: Any) -> SweepConfig:
    return parse(SweepConfig, {"search": "optuna", "random": RATES, "samples": 40} | values)


def searched(config: SweepConfig, score: Callable[[Setting], float], *, minimize: bool = False) -> list[Setting]:
    """All settings of a search, scored by a function instead of a training."""
    search, tried = Search(config), settings_of(config)
    while more := search.next(tried, {each.digest: score(each) for each in tried}, minimize=minimize):
        tried += more
    return tried


def rate(setting: Setting) -> float:
    return math.log10(setting.config.optimizer.learning_rate)


def near(best: float) -> Callable[[Setting], float]:
    return lambda setting: -((rate(setting) - best) ** 2)


@pytest.mark.parametrize("minimize", [False, True])
def test_it_comes_near_the_best(minimize: bool) -> None:
    sign = -1 if minimize else 1
    found = searched(config(), lambda setting: sign * near(-2.5)(setting), minimize=minimize)
    assert len(found) == 40
    drawn, late = (np.mean([abs(rate(setting) + 2.5) for setting in part]) for part in (found[:10], found[-15:]))
    assert late < drawn / 2


def test_its_first_samples_are_those_of_a_random_search() -> None:
    found = searched(config(samples=12), near(-3))
    drawn = settings_of(config(search="random", samples=12))
    assert [each.digest for each in found[:10]] == [each.digest for each in drawn[:10]]
    assert {each.digest for each in found[10:]}.isdisjoint(each.digest for each in drawn)


def test_the_same_scores_lead_to_the_same_settings_and_more_samples_keep_those_of_fewer() -> None:
    few, again, more = (searched(config(samples=samples), near(-3)) for samples in (13, 13, 16))
    assert few == again == more[:13] and len(more) == 16
    assert searched(config(samples=13), near(-1.5))[11:] != few[11:]
    assert searched(config(samples=13, seed=1), near(-3)) != few


def test_each_combination_of_the_grid_is_searched_by_itself() -> None:
    both = searched(
        config(grid={"algorithm": ["bc", "iql"]}, samples=30),
        lambda setting: near(-4 if setting.config.algorithm == "bc" else -2)(setting),
    )
    late = {name: [rate(each) for each in both if each.config.algorithm == name][-10:] for name in ("bc", "iql")}
    assert len(both) == 60 and np.mean(late["bc"]) < -3.3 and np.mean(late["iql"]) > -2.7


def test_choices_may_be_anything_and_whole_numbers_stay_whole() -> None:
    random = {"network.hidden_sizes": [[8], [16, 16]], "optimizer.batch_size": {"low": 16, "high": 4096, "log": True}}
    found = searched(
        config(random=random, samples=30),
        lambda setting: len(setting.config.network.hidden_sizes) - abs(math.log2(setting.config.optimizer.batch_size) - 8),
    )
    assert all(type(each.parameters["optimizer.batch_size"]) is int for each in found)
    assert np.mean([each.config.network.hidden_sizes == [16, 16] for each in found[-10:]]) > 0.5


def test_what_was_tried_is_not_tried_again() -> None:
    found = searched(config(random={"optimizer.batch_size": [16, 32, 64]}, samples=20), lambda setting: 0.0)
    assert sorted(each.config.optimizer.batch_size for each in found) == [16, 32, 64]


def test_settings_without_a_score_are_learned_nothing_from() -> None:
    search, tried = Search(config(samples=11)), settings_of(config(samples=11))
    (more,) = search.next(tried, {tried[0].digest: math.nan}, minimize=False)
    assert more.digest not in {each.digest for each in tried}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    return dataset_of(tmp_path_factory.mktemp("data"), balancing_episodes())


def test_a_sweep_goes_on_from_the_runs_that_are_there(tmp_path: Path, data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "FIRST_SAMPLES", 2)
    wanted = config(training=TRAINING, samples=4, seeds=1, parallel=1, resamples=100)
    result = sweep(wanted, dataset=data, output=str(tmp_path))
    assert len(result.settings) == 4 and not result.reused
    assert sweep(wanted, dataset=data, output=str(tmp_path)).reused
    before = written(tmp_path)
    worst = result.settings[-1].folder
    shutil.rmtree(worst)
    again = sweep(wanted, dataset=data, output=str(tmp_path))
    after = written(tmp_path)
    assert not again.reused and [each.parameters for each in again.settings] == [each.parameters for each in result.settings]
    assert after.keys() == before.keys() and sum(after[path] != before[path] for path in before) == 1


def test_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, data: str) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigError, match=r"This needs optuna; install it, .* '\.\[optuna\]'"):
        sweep(config(training=TRAINING), dataset=data, output=str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_there_has_to_be_something_to_search() -> None:
    with pytest.raises(ConfigError, match="optuna searches among the values of random, which is empty"):
        config(random={}, grid={"algorithm": ["bc"]})
