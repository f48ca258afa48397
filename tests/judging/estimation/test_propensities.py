"""Recorded probabilities that cannot be: above 1, of other units, or that do not add up to 1."""

from __future__ import annotations

import numpy as np
import pytest

from offline_core.data.episodes import EpisodeBatch
from offline_core.errors import SchemaError
from offline_core.judging.estimation.logged import recorded_logs
from offline_core.judging.estimation.propensities import about_propensities

CHANCES = np.array([[0.6, 0.3, 0.1], [0.2, 0.2, 0.6]])


def batch(logs: list[float], actions: np.ndarray) -> EpisodeBatch:
    """Two episodes of two steps, with a row after each, whose number means nothing."""
    columns = {"actions": actions, "action_logp": np.array([*logs[:2], 9.0, *logs[2:], 9.0])}
    return EpisodeBatch(columns=columns, offsets=np.array([0, 3, 6]), has_last=True, eps_ids=["first", "second"])


@pytest.mark.parametrize(
    ("logs", "told"),
    [
        ([-0.2, -1.0, 0.4, -0.1], r"data, episode second, step 0: action_logp is 0.4, .* so are 1 of 4 .* its logarithm once"),
        ([0.2, 0.5, 1.0, 0.1], r"episode first, step 0: .* and not their logarithms: take ln\(\)"),
        ([0.2, 2.5, 1.0, 0.0], r"logarithms are whose sign was turned"),
    ],
    ids=["one above 1", "no logarithms", "sign turned"],
)
def test_a_choice_has_no_probability_above_1(logs: list[float], told: str) -> None:
    with pytest.raises(SchemaError, match=told):
        recorded_logs(batch(logs, np.arange(6)), "data")
    assert recorded_logs(batch(logs, np.arange(6.0)), "data")[0] == logs[0], "a density may be above 1"


def test_logarithms_of_probabilities_are_taken() -> None:
    assert recorded_logs(batch([-0.2, 0.0, -3.0, 1e-7], np.arange(6)), "data")[3] == -3.0


def drawn(rows: int = 4_000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Contexts, actions and their logarithms."""
    rng = np.random.default_rng(0)
    contexts = rng.integers(0, 2, rows)
    actions = (rng.random(rows)[:, None] >= CHANCES.cumsum(axis=1)[contexts]).sum(axis=1)
    return contexts, actions, np.log(CHANCES[contexts, actions])


def test_probabilities_that_add_up_are_believed() -> None:
    contexts, actions, logs = drawn()
    assert [*about_propensities(logs, actions, contexts, count=3)] == []
    assert [*about_propensities(logs, actions, None, count=3)] == []
    assert [*about_propensities(logs, actions, contexts, count=9)] == [], "six actions are never taken, which may be"
    assert [*about_propensities(logs[:20] * 5, actions[:20], contexts[:20], count=3)] == [], "too few to tell"


def test_probabilities_that_sum_to_less_are_told() -> None:
    contexts, actions, logs = drawn()
    for known in (contexts, None):
        [told] = about_propensities(logs / np.log(2), actions, known, count=3)
        assert "of its 3 actions sum to about 0.5" in told and "As logarithms to the base 2 they do" in told


def test_probabilities_that_sum_to_more_are_told_where_each_action_was_seen() -> None:
    contexts, actions, logs = drawn()
    [told] = about_propensities(logs / np.log(10), actions, contexts, count=3)
    assert "in contexts where each was seen, sum to about 1." in told
    assert "As logarithms to the base 10 they do: import natural ones, such as columns: {computed: {natural: logp * 2.3" in told
    assert [*about_propensities(logs / np.log(10), actions, None, count=3)] == []


def test_no_base_is_named_where_none_lets_them_add_up() -> None:
    contexts, actions, logs = drawn()
    [told] = about_propensities(logs * 1.7, actions, contexts, count=3)
    assert "to the base" not in told and "of another policy, of a logarithm to another base than e" in told
