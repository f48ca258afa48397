"""How columns of whole episodes lie, and what is not that."""

from __future__ import annotations

import numpy as np
import pytest

from offline_core.errors import SchemaError
from offline_core.prelearner.layout import IS_STEP, STARTS, check_layout, lay_out

STEPS = {"obs": {"position": np.arange(5.0)[:, None]}, "actions": np.arange(5)}


def test_episodes_lie_one_after_the_other() -> None:
    rows = lay_out(STEPS, [3, 2])
    assert rows[STARTS].tolist() == [True, False, False, True, False]
    assert rows[IS_STEP].all()
    assert rows["actions"] is STEPS["actions"]


def test_a_row_for_the_last_observation_repeats_the_rest() -> None:
    rows = lay_out(STEPS, [3, 2], {"position": np.array([[30.0], [50.0]])})
    assert rows["obs"]["position"][:, 0].tolist() == [0, 1, 2, 30, 3, 4, 50]
    assert rows["actions"].tolist() == [0, 1, 2, 2, 3, 4, 4]
    assert rows[STARTS].tolist() == [True, False, False, False, True, False, False]
    assert rows[IS_STEP].tolist() == [True, True, True, False, True, True, False]
    assert STEPS["obs"]["position"][3, 0] == 3, "what was given stays as it is"


@pytest.mark.parametrize("looks_ahead", [False, True])
def test_what_is_laid_out_is_right(looks_ahead: bool) -> None:
    rows = lay_out(STEPS, [3, 2], {"position": np.zeros((2, 1))} if looks_ahead else None)
    assert check_layout(rows, looks_ahead=looks_ahead) is rows
    with pytest.raises(SchemaError, match="has to be the one after the last step"):
        check_layout(rows, looks_ahead=not looks_ahead)
    nothing = {STARTS: np.zeros(0, bool), IS_STEP: np.zeros(0, bool)}
    assert check_layout(nothing, looks_ahead=looks_ahead) is nothing


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"actions": np.arange(4)}, "the column actions has 4 rows, _starts has 5"),
        ({"obs": {"position": 3}}, "the column obs/position has a int"),
        ({STARTS: np.ones(5, int)}, "the column _starts is int64 of shape .*; one boolean a row is needed"),
        ({STARTS: np.ones((5, 1), bool)}, "the column _starts is bool of shape"),
        ({"terminateds": np.ones(5, int)}, "the column terminateds is int64"),
        ({"words": np.array(list("abcde"))}, "the column words is of <U1, and not of numbers"),
        ({"things": np.array([None] * 5)}, "the column things is of object, and not of numbers"),
        ({STARTS: np.arange(5) == 3}, "the first row is in the middle of an episode"),
        ({IS_STEP: np.arange(5) != 1}, "no row has to be the one after the last step"),
    ],
)
def test_what_is_wrong_is_told(changes: dict, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        check_layout(lay_out(STEPS, [3, 2]) | changes, looks_ahead=False)


@pytest.mark.parametrize("made", [None, [1, 2], {"obs": np.zeros(3)}])
def test_what_is_no_columns_is_told(made: object) -> None:
    with pytest.raises(SchemaError, match="columns have to be a dict with _starts and _is_step, and not"):
        check_layout(made, looks_ahead=False)


@pytest.mark.parametrize(
    ("lengths", "last", "message"),
    [
        ([3, 1], None, r"_SOME_ has 5 rows, the lengths add up to 4"),
        ([3, 3], None, r"has 5 rows, the lengths add up to 6"),
        ([3, 1], np.zeros((2, 1)), r"has 5 rows, the lengths add up to 4"),
        ([3, 2], np.zeros((1, 1)), r"last/position has 1 rows, the number of episodes is 2"),
        ([3, 0, 2], np.zeros((3, 1)), "at least 1"),
        ([[3], [2]], None, "one number each"),
    ],
)
def test_lengths_that_do_not_fit_are_told(lengths: list, last: np.ndarray | None, message: str) -> None:
    with pytest.raises(SchemaError, match=message.replace("_SOME_", ".*")):
        lay_out(STEPS, lengths, None if last is None else {"position": last})


def test_another_shape_of_the_last_observation() -> None:
    with pytest.raises(SchemaError, match="different shapes in obs/position"):
        lay_out(STEPS, [3, 2], {"position": np.zeros((2, 2))})
