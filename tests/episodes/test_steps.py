"""Steps of several episodes, a column at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offline_core.episodes import Episode, columns, episodes_to_table, nested
from offline_core.episodes.arrow import read_column
from offline_core.episodes.steps import STEP_NAMES, step_column
from tests.episodes.strategies import counting, episode_lists


@settings(max_examples=40)
@given(episode_lists(count=st.integers(1, 3), steps=st.integers(1, 4), lookback=st.integers(0, 2)))
def test_columns_are_those_of_the_step_table(some: list[Episode]) -> None:
    table = episodes_to_table(some)
    for name in [*STEP_NAMES, *some[0].extras]:
        assert nested.equal(step_column(some, name), read_column(table, name))


def test_columns_of_an_episode_without_steps() -> None:
    assert [len(step_column([counting(0)], name)) for name in STEP_NAMES] == [0] * len(STEP_NAMES)


def test_episodes_that_do_not_agree() -> None:
    with pytest.raises(KeyError, match="nothing"):
        step_column([counting()], "nothing")
    with pytest.raises(ValueError):
        step_column([counting(), counting(observations=np.zeros((7, 3)))], columns.OBS)
