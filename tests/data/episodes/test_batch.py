"""Steps of many episodes in one container: to and from episodes, tables and parts of itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offline_core.data.episodes import Episode, EpisodeBatch, columns, episodes_to_table, nested
from offline_core.data.episodes.arrow import read_column
from offline_core.data.episodes.batch import STEP_NAMES, step_column
from offline_core.data.episodes.codecs import CODECS
from offline_core.errors import EpisodeError, SchemaError
from tests.cases import examples
from tests.data.episodes.strategies import counting, episode_lists

EPISODES = episode_lists(count=st.integers(1, 3), steps=st.integers(1, 4), lookback=st.integers(0, 2))
STEPS = {"obs": {"position": np.arange(5.0)[:, None]}, "actions": np.arange(5)}


def without_the_rest(episode: Episode) -> Episode:
    """Only what columns and offsets hold."""
    whole = episode.slice(0, len(episode))
    names = ("eps_id", "observations", "actions", "rewards", "extras", "terminated", "truncated", "t_started")
    return Episode(**{name: getattr(whole, name) for name in names})


@settings(max_examples=examples(25))
@given(EPISODES)
def test_columns_are_those_of_the_step_table(some: list[Episode]) -> None:
    table, batch = episodes_to_table(some), EpisodeBatch.of(some)
    for name in [*STEP_NAMES, *some[0].extras]:
        assert nested.equal(batch[name], read_column(table, name))
    again = CODECS["table"].batch(table, list(batch.columns), has_last=False)
    assert again.columns.keys() == batch.columns.keys()
    for name in batch.columns:
        assert nested.equal(again[name], batch[name])


@settings(max_examples=examples(25))
@given(EPISODES, st.booleans())
def test_episodes_come_back_from_a_batch(some: list[Episode], has_last: bool) -> None:
    batch = EpisodeBatch.of(some, has_last=has_last)
    assert (len(batch), batch.num_episodes) == (sum(map(len, some)), len(some))
    assert batch.rows == len(batch) + has_last * len(some)
    assert batch.episodes() == [without_the_rest(episode) for episode in some]
    assert batch.returns().tolist() == [episode.return_ for episode in some]


@settings(max_examples=examples(25))
@given(EPISODES, st.booleans(), st.data())
def test_parts_of_a_batch_are_batches_of_parts(some: list[Episode], has_last: bool, data: st.DataObject) -> None:
    batch, expected = EpisodeBatch.of(some, has_last=has_last), [without_the_rest(episode) for episode in some]
    start, stop = sorted(data.draw(st.tuples(*[st.integers(0, len(some))] * 2)))
    assert batch.slice(start, stop).episodes() == expected[start:stop]
    chosen = np.array(data.draw(st.lists(st.booleans(), min_size=len(some), max_size=len(some))))
    assert batch.select(chosen).episodes() == [episode for episode, taken in zip(expected, chosen, strict=True) if taken]
    assert EpisodeBatch.concatenate(list(batch.each())).episodes() == expected
    steps = data.draw(st.integers(1, 5))
    for episode, short in zip(some, batch.head(steps).episodes(), strict=True):
        assert short == without_the_rest(episode.slice(0, min(steps, len(episode))))


def test_rows_know_their_episode() -> None:
    batch = EpisodeBatch.from_steps(STEPS, [3, 2], {"position": np.array([[30.0], [50.0]])})
    assert batch.offsets.tolist() == [0, 4, 7] and batch.lengths.tolist() == [3, 2]
    assert batch.episode.tolist() == [0, 0, 0, 0, 1, 1, 1] and batch.first.tolist() == [0, 0, 0, 0, 4, 4, 4]
    assert batch.is_step.tolist() == [True, True, True, False, True, True, False]
    assert batch.steps_left.tolist() == [3, 2, 1, 0, 2, 1, 0] and batch.last_steps.tolist() == [2, 5]
    plain = EpisodeBatch.from_steps(STEPS, [3, 2])
    assert plain.is_step.all() and plain.steps_left.tolist() == [3, 2, 1, 2, 1] and plain.last_steps.tolist() == [2, 4]


def test_leaves_are_those_of_columns_and_not_of_names_that_begin_alike() -> None:
    names = ("obs/position", "obs/speed/0", "obs_age", "actions", "new_obs/position")
    batch = EpisodeBatch(columns={name: np.zeros(2) for name in names}, offsets=np.array([0, 2]))
    assert [*batch.leaves("obs")] == ["obs/position", "obs/speed/0"]
    assert [*batch.leaves("actions", "obs")] == ["obs/position", "obs/speed/0", "actions"]


def test_a_row_for_the_last_observation_repeats_the_rest() -> None:
    batch = EpisodeBatch.from_steps(STEPS, [3, 2], {"position": np.array([[30.0], [50.0]])})
    assert batch["obs"]["position"][:, 0].tolist() == [0, 1, 2, 30, 3, 4, 50]
    assert batch["actions"].tolist() == [0, 1, 2, 2, 3, 4, 4]
    assert batch.of_steps("actions").tolist() == [0, 1, 2, 3, 4]


def test_nothing_is_copied_and_what_is_read_only_cannot_be_written_to() -> None:
    batch = EpisodeBatch.from_steps(STEPS, [3, 2])
    for part in (batch, batch.flat(), batch.slice(1, 2), batch.read_only(), batch | {"rewards": np.zeros(5)}):
        assert np.shares_memory(part["actions"], STEPS["actions"])
    assert batch.flat().columns.keys() == {"obs/position", "actions"}
    with pytest.raises(ValueError, match="read-only"):
        batch.read_only()["obs"]["position"][0] = 1
    assert not np.shares_memory(batch.copy()["actions"], STEPS["actions"])


@pytest.mark.parametrize(
    ("lengths", "last", "message"),
    [
        ([3, 1], None, "the column obs/position has 5 rows, the episodes have 4"),
        ([3, 3], np.zeros((2, 1)), "has 5 rows, the episodes have 6"),
        ([3, 2], np.zeros((1, 1)), "last/position has 1 rows, the number of episodes is 2"),
        ([3, 0, 2], np.zeros((3, 1)), "at least 1"),
        ([[3], [2]], None, "one number each"),
        ([3, 2], np.zeros((2, 2)), "different shapes in obs/position"),
    ],
)
def test_lengths_and_last_observations_that_do_not_fit_are_refused(lengths: list, last: object, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        EpisodeBatch.from_steps(STEPS, lengths, None if last is None else {"position": last})


def test_columns_of_an_episode_without_steps() -> None:
    batch = EpisodeBatch.of([counting(0), counting(2)], STEP_NAMES)
    assert batch.lengths.tolist() == [0, 2] and [len(each) for each in batch.episodes()] == [0, 2]
    assert [len(step_column([counting(0)], name)) for name in STEP_NAMES] == [0] * len(STEP_NAMES)


def test_episodes_that_do_not_agree() -> None:
    with pytest.raises(EpisodeError, match="nothing"):
        EpisodeBatch.of([counting()], ["nothing"])
    with pytest.raises(EpisodeError, match="differ in shape"):
        EpisodeBatch.of([counting(), counting(observations=np.zeros((7, 3)))], [columns.OBS])
