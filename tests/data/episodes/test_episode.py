"""`Episode`: access by index, cutting and joining, and the checks that say whether one is whole."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from offline_core.data.episodes import Episode
from offline_core.errors import EpisodeError, NonFiniteError
from tests.cases import examples
from tests.data.episodes.strategies import counting, episode_lists

# ---- Size and state --------------------------------------------------------------------------------------------------


def test_lengths_leave_the_lookback_out() -> None:
    piece = counting(6, lookback=3, t_started=10)
    assert (len(piece), piece.t_started, piece.t) == (6, 10, 16)
    assert len(piece.get_observations()) == 7
    assert len(piece.get_actions()) == len(piece.get_rewards()) == len(piece.get_extra("action_logp")) == 6
    assert piece.return_ == sum(t / 2 for t in range(10, 16))


def test_the_return_is_summed_in_double_precision() -> None:
    assert counting(2**14, rewards=np.full(2**14, 2048, np.float16)).return_ == 2**25


def test_the_text_of_an_episode_says_how_it_ended() -> None:
    ends = {"open>": {}, "terminated>": {"terminated": True}, "truncated>": {"truncated": True}}
    assert all(repr(counting(**changes)).endswith(end) for end, changes in ends.items())


# ---- Getters ---------------------------------------------------------------------------------------------------------


def of_every_kind(episode: Episode, index: Any, **how: Any) -> dict[str, Any]:
    """What the five getters say, all turned into time steps: see `counting`."""
    return {
        "observations": episode.get_observations(index, **how)[..., 0],
        "infos": np.array([info["t"] for info in np.atleast_1d(episode.get_infos(index, **how))], int),
        "actions": episode.get_actions(index, **how) - 100,
        "rewards": episode.get_rewards(index, **how) * 2,
        "extras": -episode.get_extra("action_logp", index, **how),
    }


STEPS = st.integers(0, 7)
LOOKBACKS = st.integers(0, 3)
BOUNDS = st.none() | st.integers(-12, 12)


@settings(max_examples=examples(150))
@given(
    steps=STEPS, lookback=LOOKBACKS, start=BOUNDS, stop=BOUNDS, step=st.none() | st.integers(1, 3), t_started=st.integers(0, 50)
)
def test_slices_read_like_slices_of_a_list(
    steps: int, lookback: int, start: int | None, stop: int | None, step: int | None, t_started: int
) -> None:
    piece = counting(steps, lookback=lookback, t_started=t_started)
    index = slice(start, stop, step)
    for what, found in of_every_kind(piece, index).items():
        count = steps + 1 if what in ("observations", "infos") else steps
        assert found.tolist() == list(range(t_started, t_started + count))[index], what


@settings(max_examples=examples(150))
@given(steps=STEPS, lookback=LOOKBACKS, index=st.integers(-12, 12))
def test_integers_read_like_items_of_a_list(steps: int, lookback: int, index: int) -> None:
    piece = counting(steps, lookback=lookback)
    for name, count in {"observations": steps + 1, "actions": steps}.items():
        getter = piece.get_observations if name == "observations" else piece.get_actions
        if -count <= index < count:
            found = getter(index)[0] if name == "observations" else getter(index) - 100
            assert found == list(range(count))[index]
        else:
            with pytest.raises(IndexError, match=f"{index} .*count"):
                getter(index)


@settings(max_examples=examples(150))
@given(steps=STEPS, lookback=LOOKBACKS, start=BOUNDS, stop=BOUNDS)
def test_negative_indices_can_reach_into_the_lookback(steps: int, lookback: int, start: int | None, stop: int | None) -> None:
    """With neg_index_as_lookback an index is a time step, and a slice takes those there are."""
    piece = counting(steps, lookback=lookback)
    for what, found in of_every_kind(piece, slice(start, stop), neg_index_as_lookback=True).items():
        last = steps + 1 if what in ("observations", "infos") else steps
        first = 0 if start is None else start
        wanted = range(first, last if stop is None else stop)
        assert found.tolist() == [t for t in wanted if -lookback <= t < last], what


@settings(max_examples=examples(100))
@given(steps=STEPS, lookback=LOOKBACKS, index=st.integers(-5, 9))
def test_single_items_of_the_lookback(steps: int, lookback: int, index: int) -> None:
    piece = counting(steps, lookback=lookback)
    if -lookback <= index <= steps:
        assert piece.get_observations(index, neg_index_as_lookback=True)[0] == index
        assert piece.get_infos(np.int64(index), neg_index_as_lookback=True) == {"t": index}
    else:
        with pytest.raises(IndexError):
            piece.get_observations(index, neg_index_as_lookback=True)


def test_getters_walk_through_dicts_and_tuples() -> None:
    t = np.arange(4)
    piece = counting(3, observations={"a": t, "b": (10 + t, 20 + t)}, extras={"state": {"h": t[:-1]}})
    assert piece.get_observations(-1) == {"a": 3, "b": (13, 23)}
    assert piece.get_observations(slice(1, 3))["b"][1].tolist() == [21, 22]
    assert piece.get_extra("state", 1) == {"h": 1}


def test_infos_that_were_not_given_are_empty() -> None:
    piece = counting(3, lookback=2, infos=None)
    assert piece.get_infos() == [{}, {}, {}, {}]
    assert piece.get_infos(-1) == {}
    assert piece.get_infos(slice(-9, 1), neg_index_as_lookback=True) == [{}, {}, {}]
    with pytest.raises(IndexError):
        piece.get_infos(4)


def test_episodes_are_not_read_backwards() -> None:
    with pytest.raises(IndexError, match="backwards"):
        counting().get_rewards(slice(None, None, -1))
    with pytest.raises(IndexError, match="backwards"):
        counting().get_rewards(slice(None, None, -1), neg_index_as_lookback=True)


# ---- Equality --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"eps_id": "other"},
        {"terminated": True},
        {"truncated": True},
        {"t_started": 1},
        {"agent_id": "a"},
        {"module_id": "m"},
        {"rewards": np.arange(6) / 2 + 1},
        {"actions": np.arange(6)},
        {"observations": np.zeros((7, 2), np.float32)},
        {"observations": {"a": np.zeros(7)}},
        {"extras": {}},
        {"extras": {"other": np.zeros(6)}},
        {"infos": None},
        {"infos": [{"t": i} for i in range(6)] + [{"t": "6"}]},
        {"custom_data": {"a": 1}},
    ],
    ids=str,
)
def test_every_content_counts_for_equality(changes: dict[str, Any]) -> None:
    assert counting() == counting()
    assert counting(**changes) != counting()


def test_lookback_counts_for_equality() -> None:
    piece = counting(5, lookback=1, t_started=1)
    assert replace(piece, lookback=0, t_started=0) != piece


def test_nan_equals_nan_and_spaces_do_not_count() -> None:
    def with_nan(**changes: Any) -> Episode:
        return counting(1, infos=[{}, {"x": float("nan"), "y": np.array([np.nan])}], rewards=np.array([np.nan]), **changes)

    assert with_nan() == with_nan(action_space=gym.spaces.Discrete(3))


def test_an_episode_is_no_key_and_equals_nothing_else() -> None:
    with pytest.raises(TypeError):
        hash(counting())
    assert counting() != "count"


# ---- Slicing and joining ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given_lookback", [0, 2])
@pytest.mark.parametrize("asked", [0, 1, 3, 9])
def test_a_slice_has_as_much_lookback_as_there_is(given_lookback: int, asked: int) -> None:
    whole = counting(8, lookback=given_lookback, terminated=True)
    piece = whole.slice(3, 6, lookback=asked)
    there = min(asked, 3 + given_lookback)
    assert piece == replace(counting(3, lookback=there, t_started=3), terminated=False)
    assert piece.validate() is piece
    assert piece.get_rewards(slice(-there, 0), neg_index_as_lookback=True).tolist() == [t / 2 for t in range(3 - there, 3)]


def test_only_the_last_piece_is_done() -> None:
    whole = counting(6, truncated=True)
    assert not whole.slice(0, 5).is_done
    assert whole.slice(5, 6).truncated and whole.slice(5, 6).is_done
    assert counting(terminated=True).is_done


def test_slices_are_views() -> None:
    whole = counting(6)
    assert np.shares_memory(whole.slice(2, 4, lookback=1).observations, whole.observations)


@pytest.mark.parametrize(("start", "stop"), [(-1, 3), (2, 7), (4, 3)])
def test_slices_outside_are_refused(start: int, stop: int) -> None:
    with pytest.raises(IndexError, match=rf"{start}\.\.{stop} .* 6 steps of episode count"):
        counting(6).slice(start, stop)


@settings(max_examples=examples(80), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(episode_lists(count=st.just(1), steps=st.integers(1, 6), lookback=st.integers(0, 2)), st.data())
def test_joining_consecutive_pieces_undoes_slicing(episodes: list[Episode], data: st.DataObject) -> None:
    (whole,) = episodes
    cuts = sorted(data.draw(st.sets(st.integers(0, len(whole) - 1)))) if len(whole) else []
    pieces = [
        whole.slice(start, stop, lookback=whole.lookback if start == 0 else data.draw(st.integers(0, 3)))
        for start, stop in zip([0, *cuts], [*cuts, len(whole)], strict=True)
    ]
    assert [piece.is_done for piece in pieces[:-1]] == [False] * (len(pieces) - 1)
    assert sum(map(len, pieces)) == len(whole)
    assert reduce(Episode.concat, pieces) == whole


def test_joining_keeps_what_either_piece_says_of_itself() -> None:
    first, second = counting(3, infos=None, custom_data={"a": 1}), counting(3, t_started=3, custom_data={"b": 2})
    joined = first.concat(replace(second, terminated=True))
    assert joined.custom_data == {"a": 1, "b": 2}
    assert joined.get_infos() == [{}, {}, {}, {"t": 3}, {"t": 4}, {"t": 5}, {"t": 6}]
    assert joined.terminated
    assert joined.get_rewards().tolist() == [t / 2 for t in range(6)]


FOLLOWS = counting(3, t_started=6)


@pytest.mark.parametrize(
    ("first", "second", "named"),
    [
        (counting(), replace(FOLLOWS, eps_id="other"), ["belongs to episode other"]),
        (counting(terminated=True), FOLLOWS, ["already ends"]),
        (counting(truncated=True), FOLLOWS, ["already ends"]),
        (counting(), counting(3, t_started=7), ["starts at step 7 and not at 6"]),
        (counting(), counting(3, t_started=5), ["starts at step 5 and not at 6"]),
        (counting(), replace(FOLLOWS, extras={}), [r"extras are \[\] and not \['action_logp'\]"]),
        (counting(), replace(FOLLOWS, observations=FOLLOWS.observations + 1), ["first observation is not the last"]),
        (counting(), replace(FOLLOWS, observations={"a": np.zeros(4)}), ["first observation is not the last"]),
        (
            counting(terminated=True),
            counting(3, t_started=9, eps_id="other", extras={}),
            ["other", "already ends", "step 9", "extras"],
        ),
    ],
)
def test_a_piece_that_does_not_follow_is_refused_with_all_reasons(first: Episode, second: Episode, named: list[str]) -> None:
    for pattern in ["episode count", *named]:
        with pytest.raises(EpisodeError, match=pattern):
            first.concat(second)


# ---- Validation ------------------------------------------------------------------------------------------------------


def test_all_problems_stand_in_one_message() -> None:
    broken = counting(
        6,
        observations=np.zeros((6, 2)),
        actions={"a": np.zeros(6), "b": np.zeros(5)},
        extras={"vf": np.zeros(7), "empty": {}},
        infos=[{}] * 3,
        observation_space=gym.spaces.Box(0, 1, (3,)),
        action_space=gym.spaces.Discrete(2),
    )
    with pytest.raises(EpisodeError) as caught:
        broken.validate()
    message = str(caught.value)
    for part in (
        "Episode count is not whole",
        "6 observations for 6 steps and a lookback of 0; 7 expected",
        "arrays of actions have to share one leading axis",
        "7 extra vf",
        "arrays of extra empty",
        "3 infos; 7 expected",
        "observations have shape (2,) a step where the space Box(0.0, 1.0, (3,), float32) has (3,)",
        "actions are dict where the space is Discrete(2)",
    ):
        assert part in message


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"rewards": np.zeros((6, 1))}, "not one number a step"),
        ({"rewards": np.array(["1"] * 6)}, "not one number a step"),
        ({"rewards": np.array(1.0)}, "not one number a step"),
        ({"lookback": 7}, "lookback of 7 does not fit into 6 rewards"),
        ({"lookback": -1}, "lookback of -1"),
        ({"observations": np.float32(1)}, "share one leading axis"),
    ],
)
def test_lengths_that_make_no_sense(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(EpisodeError, match=named):
        replace(counting(6), **changes).validate()


BOTH = gym.spaces.Dict({"a": gym.spaces.Discrete(2), "b": gym.spaces.Tuple([gym.spaces.Box(0, 1, (2,))])})


@pytest.mark.parametrize(
    ("observations", "named"),
    [
        (np.zeros(7), "observations are not a dict of ['a', 'b']"),
        ({"a": np.zeros(7)}, "observations are not a dict of ['a', 'b']"),
        ({"a": np.zeros(7), "b": np.zeros(7)}, "observations/b are not a tuple of 1"),
        ({"a": np.zeros(7), "b": (np.zeros(7), np.zeros(7))}, "observations/b are not a tuple of 1"),
        ({"a": np.zeros((7, 1)), "b": (np.zeros((7, 2)),)}, "observations/a have shape (1,) a step"),
        ({"a": np.zeros(7), "b": (np.zeros((7, 3)),)}, "observations/b/0 have shape (3,) a step"),
    ],
)
def test_observations_have_to_fit_their_space(observations: Any, named: str) -> None:
    with pytest.raises(EpisodeError) as caught:
        counting(6, observations=observations, observation_space=BOTH).validate()
    assert named in str(caught.value)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("where", ["observations", "actions", "rewards"])
def test_nan_is_refused_with_its_step(where: str, dtype: type) -> None:
    piece = counting(6, lookback=2)
    array = np.array(getattr(piece, where), dtype)
    array[2 + 4] = np.nan
    with pytest.raises(NonFiniteError, match=rf"Episode count .* {where} at step 4\b"):
        replace(piece, **{where: array}).validate()


def test_parts_with_one_path_are_refused() -> None:
    """One of them would be lost wherever columns are named by their path."""
    with pytest.raises(EpisodeError, match="Two parts of observations have the same path; rename the keys that contain '/'"):
        counting(6, observations={"a/b": np.zeros(7), "a": {"b": np.full(7, np.nan)}}).validate()


def test_nan_in_a_leaf_is_named_by_its_path() -> None:
    observations = {"a": np.zeros(7), "b": (np.zeros((7, 2)),)}
    observations["b"][0][5, 1] = np.nan
    with pytest.raises(NonFiniteError, match="observations/b/0 at step 5"):
        counting(6, observations=observations).validate()


def test_nan_in_the_lookback_has_a_negative_step() -> None:
    piece = counting(6, lookback=2)
    rewards = piece.rewards.copy()
    rewards[0] = np.nan
    with pytest.raises(NonFiniteError, match="rewards at step -2"):
        replace(piece, rewards=rewards).validate()


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinity_is_an_observation_but_neither_reward_nor_action(value: float) -> None:
    rewards, actions = np.zeros(6), np.zeros((6, 1))
    rewards[3] = actions[3] = value
    observations = np.full((7, 2), value)
    assert counting(6, observations=observations).validate().get_observations(0)[0] == value
    with pytest.raises(NonFiniteError, match="rewards at step 3"):
        counting(6, rewards=rewards).validate()
    with pytest.raises(NonFiniteError, match="actions at step 3"):
        counting(6, actions=actions).validate()
