"""Settings: which combinations are made, how values are drawn, and that all that is wrong is named at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from offline_core.errors import ConfigError
from offline_core.judging.sweeps.config import SweepConfig
from offline_core.judging.sweeps.settings import combinations, is_whole, settings_of
from offline_core.learning.config import TrainingConfig
from offline_core.runtime.config import parse


def sweep(**values: Any) -> SweepConfig:
    return parse(SweepConfig, values)


def names(config: SweepConfig) -> list[str]:
    return [setting.name for setting in settings_of(config)]


def test_a_grid_is_each_combination_in_its_order() -> None:
    config = sweep(grid={"algorithm": ["bc", "iql"], "optimizer.batch_size": [64, 128]}, training={"network": {"frames": 2}})
    assert names(config) == [
        "algorithm=bc, optimizer.batch_size=64",
        "algorithm=bc, optimizer.batch_size=128",
        "algorithm=iql, optimizer.batch_size=64",
        "algorithm=iql, optimizer.batch_size=128",
    ]
    assert [setting.config.optimizer.batch_size for setting in settings_of(config)] == [64, 128, 64, 128]
    assert {setting.config.network.frames for setting in settings_of(config)} == {2}
    assert names(sweep()) == ["as it is"]


def test_parameters_of_other_algorithms_make_no_settings() -> None:
    config = sweep(grid={"algorithm": ["bc", "iql"], "iql.beta": [1, 3]})
    assert names(config) == ["algorithm=bc", "algorithm=iql, iql.beta=1", "algorithm=iql, iql.beta=3"]
    assert ["iql" in setting.config.model_fields_set for setting in settings_of(config)] == [False, True, True]


def test_a_preset_is_that_of_each_algorithm_below_what_is_said() -> None:
    """Of an algorithm that has none it is refused."""
    values = {"training": {"preset": "locomotion", "optimizer": {"max_updates": 7}}, "grid": {"algorithm": ["iql", "rebrac"]}}
    iql, rebrac = settings_of(sweep(**values))
    assert iql.name == "preset=locomotion, algorithm=iql"
    assert iql.config == parse(TrainingConfig, values["training"] | {"algorithm": "iql"})
    assert rebrac.config == parse(TrainingConfig, values["training"] | {"algorithm": "rebrac"})
    assert iql.config.optimizer.max_updates == rebrac.config.optimizer.max_updates == 7
    assert (iql.config.optimizer.batch_size, rebrac.config.optimizer.batch_size) == (256, 1024)
    (mine,) = settings_of(sweep(**values | {"grid": {"preset": ["antmaze"], "algorithm": ["iql"]}}))
    assert mine.config.iql.beta == 10
    with pytest.raises(ConfigError, match=r"algorithm=dqn: .*\n.*of the algorithm dqn there is no preset 'locomotion'"):
        settings_of(sweep(**values | {"grid": {"algorithm": ["iql", "dqn"]}}))


def test_settings_that_differ_in_speed_alone_are_one() -> None:
    assert names(sweep(grid={"data.prefetch": [1, 2]})) == ["data.prefetch=1"]
    held_out = sweep(grid={"evaluation.held_out": ["a", "b"]})
    assert len({setting.digest for setting in settings_of(held_out)}) == 2


def test_groups_may_be_nested() -> None:
    nested = sweep(grid={"iql": {"beta": [1, 3]}}, random={"optimizer": {"learning_rate": {"low": 0.1, "high": 0.2}}})
    assert [*nested.grid] == ["iql.beta"] and [*nested.random] == ["optimizer.learning_rate"]


def test_a_group_is_a_value_too_and_the_others_stay() -> None:
    config = sweep(
        training={"optimizer": {"max_epochs": 3, "networks": {"policy": {"learning_rate": 0.1}}}},
        grid={"optimizer.networks.value.learning_rate": [0.2], "network": [{"hidden_sizes": [8]}]},
    )
    (setting,) = settings_of(config)
    rates = {name: rate.learning_rate for name, rate in setting.config.optimizer.networks.items()}
    assert rates == {"policy": 0.1, "value": 0.2} and setting.config.optimizer.max_epochs == 3
    assert setting.config.network.hidden_sizes == [8]


def drawn(**values: Any) -> list[dict[str, Any]]:
    return list(combinations(sweep(**values)))


LOG = {"low": 1e-5, "high": 1e-1, "log": True}


def test_draws_lie_where_they_are_to_lie() -> None:
    rates = [each["optimizer.learning_rate"] for each in drawn(random={"optimizer.learning_rate": LOG}, samples=400)]
    assert min(rates) >= 1e-5 and max(rates) <= 1e-1
    assert np.median(rates) == pytest.approx(1e-3, rel=0.5), "half of them below the middle order of magnitude"
    betas = [each["iql.beta"] for each in drawn(random={"iql.beta": {"low": 2, "high": 4}}, samples=400)]
    assert np.mean(betas) == pytest.approx(3, abs=0.1) and not any(float(beta).is_integer() for beta in betas)


@pytest.mark.parametrize("log", [False, True])
def test_whole_numbers_are_drawn_whole(log: bool) -> None:
    found = drawn(random={"optimizer.batch_size": {"low": 1.5, "high": 4, "log": log}}, samples=100)
    assert {each["optimizer.batch_size"] for each in found} == {2, 3, 4}
    assert all(type(each["optimizer.batch_size"]) is int for each in found)


def test_lists_are_drawn_from_too() -> None:
    found = drawn(random={"algorithm": ["bc", "iql"]}, samples=50)
    assert {each["algorithm"] for each in found} == {"bc", "iql"}


def test_more_draws_and_more_paths_leave_the_others_as_they_were() -> None:
    few = drawn(random={"optimizer.learning_rate": LOG}, samples=3)
    more = drawn(random={"iql.beta": [1, 2], "optimizer.learning_rate": LOG}, samples=5)
    assert [each["optimizer.learning_rate"] for each in more][:3] == [each["optimizer.learning_rate"] for each in few]
    other = drawn(random={"optimizer.learning_rate": LOG}, samples=3, seed=1)
    assert other != few == drawn(random={"optimizer.learning_rate": LOG}, samples=3)


def test_each_combination_gets_the_same_draws() -> None:
    found = drawn(grid={"algorithm": ["bc", "iql"]}, random={"optimizer.learning_rate": LOG}, samples=3)
    rates = [each["optimizer.learning_rate"] for each in found]
    assert len(found) == 6 and rates[:3] == rates[3:] and len({*rates}) == 3


@pytest.mark.parametrize(
    ("path", "whole"),
    [
        ("optimizer.batch_size", True),
        ("optimizer.max_updates", True),
        ("network.frames", True),
        ("optimizer.learning_rate", False),
        ("optimizer.networks.policy.learning_rate", False),
        ("network.hidden_sizes", False),
        ("data.rewards.scale", False),
        ("no.such.thing", False),
    ],
)
def test_whole_numbers_are_known_by_their_field(path: str, whole: bool) -> None:
    assert is_whole(path) == whole


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"grid": {"optimizer.lr": [1]}},
            r"\noptimizer\.lr=1: 1 wrong parameter .*\n  optimizer\.lr: there is no such parameter",
        ),
        (
            {"grid": {"algorithm": ["bc", "ppo2"]}},
            r"as 1 of the settings cannot be:\nalgorithm=ppo2: .*\n.*there is no algorithm 'ppo2'",
        ),
        ({"grid": {"seed": [1]}}, "seed is a parameter of the sweep: set seeds"),
        ({"grid": {"iql.beta": [1]}, "random": {"iql.beta": [2]}}, "iql.beta is in grid and in random"),
        ({"grid": {"iql.beta": [1], "iql": [{}]}}, "iql.beta is part of iql, which is there too"),
        ({"grid": {"iql.beta": [1], "iql": {"beta": [2]}}}, "a path is there twice"),
        ({"grid": {"iql.beta": []}}, "grid.iql.beta: has to be 1 or more values, not 0"),
        ({"grid": {"algorithm.name": ["bc"]}, "training": {"algorithm": "bc"}}, "algorithm.name goes into 'algorithm'"),
        ({"random": {"iql.beta": {"low": 2, "high": 1}}}, "low is 2, above high, which is 1"),
        ({"random": {"iql.beta": {"low": 0, "high": 1, "log": True}}}, "which has no logarithm"),
        ({"random": {"optimizer.batch_size": {"low": 1.2, "high": 1.8}}}, "there is none from 1.2 to 1.8"),
        ({"training": {"seed": 3}}, "training.seed has no effect: set seed, or seeds"),
        ({"seeds": [1, 1]}, "seeds has a seed twice"),
        ({"seeds": []}, "seeds is empty"),
    ],
)
def test_what_is_wrong_is_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings_of(sweep(**values))


def test_all_that_is_wrong_is_named_at_once() -> None:
    grid = {"optimizer.learning_rate": [0.1, -1], "algorithm": ["bc", "nothing"], "iql.expectile": [0.7, 7]}
    with pytest.raises(ConfigError) as raised:
        settings_of(sweep(grid=grid))
    text = str(raised.value)
    assert text.startswith("Nothing was started, as 7 of the settings cannot be:")
    for part in ("optimizer.learning_rate: has to be", "no algorithm 'nothing'", "iql.expectile: has to be"):
        assert part in text


def test_seeds_are_counted_from_the_first_or_named() -> None:
    assert sweep(seeds=3, seed=7).all_seeds == [7, 8, 9]
    assert sweep(seeds=[4, 2]).all_seeds == [4, 2]
