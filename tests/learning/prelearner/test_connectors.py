"""Connectors of the user's own among ours: their order, what they say of themselves, and what is said when they fail."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from offline_core.data.episodes import EpisodeBatch
from offline_core.errors import ConfigError, DataError, SchemaError, SpaceError
from offline_core.learning.prelearner.connectors import ConnectorConfig, Pipeline, check_batch, each_episode

SPACES = (gym.spaces.Box(-1.0, 1.0, (2,)), gym.spaces.Discrete(3))
STEPS = {"obs": np.zeros((5, 2), np.float32), "actions": np.array([0, 1, 2, 0, 1]), "rewards": np.arange(5.0)}


def add(steps: EpisodeBatch, *, number: int = 1) -> EpisodeBatch:
    return steps | {"rewards": steps["rewards"] + number}


def double(steps: EpisodeBatch) -> EpisodeBatch:
    return steps | {"rewards": steps["rewards"] * 2}


def one_more_action(steps: EpisodeBatch) -> EpisodeBatch:
    return steps | {"actions": steps["actions"] + 1}


def drop_steps(steps: EpisodeBatch) -> EpisodeBatch:
    return steps | {"actions": steps["actions"][1:]}


def nothing(steps: EpisodeBatch) -> EpisodeBatch:
    return {"obs": steps["obs"]}


def fails(steps: EpisodeBatch) -> EpisodeBatch:
    raise KeyError("speed")


@each_episode
def length(steps: EpisodeBatch) -> EpisodeBatch:
    return steps | {"length": np.full(len(steps["rewards"]), len(steps["rewards"]))}


class Wider:
    reads = ("rewards",)
    adds = ("new_obs",)
    needs_next_obs = True

    def spaces(self, observation_space: gym.Space, action_space: gym.Space) -> tuple[gym.Space, gym.Space]:
        return gym.spaces.Box(-1.0, 1.0, (observation_space.shape[0] + 1,)), action_space

    def __call__(self, steps: EpisodeBatch) -> EpisodeBatch:
        zero = np.zeros((len(steps["obs"]), 1), np.float32)
        return steps | {"obs": np.concatenate([steps["obs"], zero], axis=1)}


class HasFunc(Wider):
    """Looks like a `functools.partial` and is none."""

    func = len
    fingerprint = "3"


def in_place(steps: EpisodeBatch) -> EpisodeBatch:
    steps["rewards"] *= 2
    return steps


def drop_all(steps: EpisodeBatch) -> EpisodeBatch:
    return steps.slice(0, 0)


def half_actions(steps: EpisodeBatch) -> EpisodeBatch:
    return steps | {"actions": steps["actions"] / 2}


class NoSpaces(Wider):
    def spaces(self, *_: Any) -> Any:
        return "two"


def pipeline(*own: str | dict[str, Any]) -> Pipeline:
    named = [{"path": one} if isinstance(one, str) else one for one in own]
    here = "tests.learning.prelearner.test_connectors"
    return Pipeline.of([ConnectorConfig(**one | {"path": f"{here}:{one['path']}"}) for one in named], SPACES)


def run(found: Pipeline, steps: dict[str, Any] = STEPS) -> EpisodeBatch:
    return found(EpisodeBatch.from_steps(steps, [3, 2], np.zeros((2, 2), np.float32) if found.needs_next_obs else None))


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
    assert (found.reads, found.adds, found.needs_next_obs) == ({"rewards"}, {"new_obs"}, True)
    assert run(found)["obs"].shape == (7, 3)
    nobody = pipeline()
    assert (nobody.reads, nobody.adds, nobody.needs_next_obs, nobody.spaces) == (set(), set(), False, SPACES)


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ("drop_steps", "the column actions has 4 rows, the episodes have 5"),
        ("nothing", "an EpisodeBatch is needed, and not a dict"),
    ],
)
def test_errors_name_the_connector_that_returned_something_else(own: str, message: str) -> None:
    with pytest.raises(SchemaError, match=f"test_connectors:{own}: {message}"):
        run(pipeline(own))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"actions": np.arange(4)}, "the column actions has 4 rows, the episodes have 5"),
        ({"obs": {"position": 3}}, "the column obs/position has a int"),
        ({"terminateds": np.ones(5, int)}, "the column terminateds is int64 of shape .*; one boolean a row is needed"),
        ({"truncateds": np.ones((5, 1), bool)}, "the column truncateds is bool of shape"),
        ({"words": np.array(list("abcde"))}, "the column words is of <U1, and not of numbers"),
        ({"things": np.array([None] * 5)}, "the column things is of object, and not of numbers"),
    ],
)
def test_columns_that_cannot_be_learned_from_are_named(changes: dict, message: str) -> None:
    batch = EpisodeBatch.from_steps(STEPS, [3, 2])
    assert check_batch(batch, has_last=False) is batch
    with pytest.raises(SchemaError, match=message):
        check_batch(batch | changes, has_last=False)


@pytest.mark.parametrize("has_last", [False, True])
def test_episodes_need_a_last_row_where_next_observations_are_needed_and_only_there(has_last: bool) -> None:
    batch = EpisodeBatch.from_steps(STEPS, [3, 2], np.zeros((2, 2)) if has_last else None)
    assert check_batch(batch, has_last=has_last) is batch
    with pytest.raises(SchemaError, match=f"each episode needs {'no row' if has_last else 'a row'} for the observation after"):
        check_batch(batch, has_last=not has_last)


def test_episodes_without_steps_are_refused() -> None:
    with pytest.raises(SchemaError, match="at least one step"):
        check_batch(EpisodeBatch(columns=STEPS, offsets=np.array([0, 5, 5])), has_last=False)


def test_a_function_of_one_episode_is_called_for_each() -> None:
    assert run(pipeline("length"))["length"].tolist() == [3, 3, 3, 2, 2]
    empty = EpisodeBatch.from_steps(STEPS, [3, 2]).slice(0, 0)
    assert length(empty) is empty


def test_what_looks_like_a_bound_function_keeps_what_it_says_of_itself() -> None:
    found = pipeline("HasFunc")
    assert (found.reads, found.needs_next_obs, found.fingerprints) == ({"rewards"}, True, ("3",))


def test_what_they_are_given_cannot_be_written_to() -> None:
    with pytest.raises(DataError, match=r"in_place failed on 5 rows: .*read-only"):
        run(pipeline("in_place"))


def test_after_nothing_is_left_nobody_is_called() -> None:
    assert run(pipeline("drop_all", "fails")).rows == 0


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
