"""Connectors of the user's own among ours: their order, what they say of themselves, and what is said when they fail."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from offline_core.errors import ConfigError, DataError, SchemaError, SpaceError
from offline_core.prelearner.config import ConnectorConfig
from offline_core.prelearner.connectors import each_episode
from offline_core.prelearner.layout import IS_STEP, STARTS, Columns, lay_out
from offline_core.prelearner.pipeline import Pipeline

SPACES = (gym.spaces.Box(-1.0, 1.0, (2,)), gym.spaces.Discrete(3))
STEPS = {"obs": np.zeros((5, 2), np.float32), "actions": np.array([0, 1, 2, 0, 1]), "rewards": np.arange(5.0)}


def add(steps: Columns, *, number: int = 1) -> Columns:
    return steps | {"rewards": steps["rewards"] + number}


def double(steps: Columns) -> Columns:
    return steps | {"rewards": steps["rewards"] * 2}


def one_more_action(steps: Columns) -> Columns:
    return steps | {"actions": steps["actions"] + 1}


def drop_first_steps(steps: Columns) -> Columns:
    return {name: array[1:] for name, array in steps.items()}


def fails(steps: Columns) -> Columns:
    raise KeyError("speed")


@each_episode
def length(steps: Columns) -> Columns:
    return steps | {"length": np.full(len(steps["rewards"]), len(steps["rewards"]))}


class Wider:
    reads = ("rewards",)
    adds = ("new_obs",)
    looks_ahead = True

    def spaces(self, observation_space: gym.Space, action_space: gym.Space) -> tuple[gym.Space, gym.Space]:
        return gym.spaces.Box(-1.0, 1.0, (observation_space.shape[0] + 1,)), action_space

    def __call__(self, steps: Columns) -> Columns:
        zero = np.zeros((len(steps["obs"]), 1), np.float32)
        return steps | {"obs": np.concatenate([steps["obs"], zero], axis=1)}


class HasFunc(Wider):
    """Looks like a `functools.partial` and is none."""

    func = len
    fingerprint = "3"


def in_place(steps: Columns) -> Columns:
    steps["rewards"] *= 2
    return steps


def drop_all(steps: Columns) -> Columns:
    return {name: array[:0] for name, array in steps.items()}


def half_actions(steps: Columns) -> Columns:
    return steps | {"actions": steps["actions"] / 2}


class NoSpaces(Wider):
    def spaces(self, *_: Any) -> Any:
        return "two"


def pipeline(*own: str | dict[str, Any]) -> Pipeline:
    named = [{"path": one} if isinstance(one, str) else one for one in own]
    here = "tests.prelearner.test_pipeline"
    return Pipeline.of([ConnectorConfig(**one | {"path": f"{here}:{one['path']}"}) for one in named], SPACES)


def run(found: Pipeline, steps: Columns = STEPS) -> Columns:
    return found(lay_out(steps, [3, 2], np.zeros((2, 2), np.float32) if found.looks_ahead else None))


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (("add", "double"), [2, 4, 6, 8, 10]),
        (("double", "add"), [1, 3, 5, 7, 9]),
        (("double", {"path": "add", "before": "double"}), [2, 4, 6, 8, 10]),
        (("add", {"path": "double", "after": "add"}), [2, 4, 6, 8, 10]),
        (({"path": "add", "after": "check_finite"}, "double"), [1, 3, 5, 7, 9]),
        (({"path": "add", "arguments": {"number": 10}},), [10, 11, 12, 13, 14]),
    ],
)
def test_they_run_in_the_order_of_their_places(own: tuple, expected: list[float]) -> None:
    assert run(pipeline(*own))["rewards"].tolist() == expected


def test_without_a_place_what_they_make_is_checked() -> None:
    with pytest.raises(SpaceError, match="values from 1 to 3, outside"):
        run(pipeline("one_more_action"))
    assert run(pipeline({"path": "one_more_action", "after": "check_spaces"}))["actions"].max() == 3


def test_what_they_say_of_themselves_adds_up() -> None:
    found = pipeline("Wider", {"path": "add", "arguments": {"number": 2}})
    assert found.spaces == (gym.spaces.Box(-1.0, 1.0, (3,)), SPACES[1])
    assert (found.reads, found.adds, found.looks_ahead) == ({"rewards"}, {"new_obs"}, True)
    assert run(found)["obs"].shape == (7, 3)
    nobody = pipeline()
    assert (nobody.reads, nobody.adds, nobody.looks_ahead, nobody.spaces) == (set(), set(), False, SPACES)


def test_steps_may_be_left_out_if_episodes_stay_whole() -> None:
    with pytest.raises(SchemaError, match=r"test_pipeline:drop_first_steps: the first row is in the middle of an episode"):
        run(pipeline("drop_first_steps"))


def test_a_function_of_one_episode_is_called_for_each() -> None:
    assert run(pipeline("length"))["length"].tolist() == [3, 3, 3, 2, 2]
    nothing = {STARTS: np.zeros(0, bool), IS_STEP: np.zeros(0, bool)}
    assert length(nothing) == nothing


def test_what_looks_like_a_bound_function_keeps_what_it_says_of_itself() -> None:
    found = pipeline("HasFunc")
    assert (found.reads, found.looks_ahead, found.fingerprints) == ({"rewards"}, True, ("3",))


def test_what_they_are_given_cannot_be_written_to() -> None:
    with pytest.raises(DataError, match=r"in_place failed on 5 rows: .*read-only"):
        run(pipeline("in_place"))


def test_after_nothing_is_left_nobody_is_called() -> None:
    assert len(run(pipeline("drop_all", "fails"))[STARTS]) == 0


def test_whole_numbers_stay_whole() -> None:
    with pytest.raises(SpaceError, match=r"Column actions is of float64; the space Discrete\(3\) has whole numbers"):
        run(pipeline("half_actions"))


def test_one_function_may_run_twice_by_two_names() -> None:
    assert run(pipeline("add", {"path": "add", "name": "again"}))["rewards"].tolist() == [2, 3, 4, 5, 6]


def test_errors_name_the_connector() -> None:
    with pytest.raises(DataError, match=r"The connector tests\..*:fails failed on 5 rows: KeyError\('speed'\)"):
        run(pipeline("fails"))


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (("add", "add"), "two connectors of the name add"),
        (({"path": "add", "before": "frames"},), "there is no frames, but check_spaces, check_finite"),
        (({"path": "add", "arguments": {"by": 3}},), "cannot be made with by"),
        (("STEPS",), "cannot be made with no arguments: .*is not a callable"),
        (("NoSpaces",), "gives 'two': it has to give a pair of gymnasium spaces"),
    ],
)
def test_what_cannot_be_placed_or_made_is_refused(own: tuple, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        pipeline(*own)


def test_one_place_is_enough() -> None:
    with pytest.raises(ValueError, match="give one of the two"):
        ConnectorConfig(path="a:b", before="x", after="y")
