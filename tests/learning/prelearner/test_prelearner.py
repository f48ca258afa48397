"""Stored rows → training columns."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import gymnasium as gym
import numpy as np
import pyarrow as pa
import pytest

from offline_core.data.episodes import Episode, EpisodeBatch, columns, decode, episodes_to_table, nested
from offline_core.data.episodes.codecs import CODECS
from offline_core.errors import EpisodeError, NonFiniteError, SpaceError
from offline_core.learning.pool import PrelearnerActor, whole_episodes
from offline_core.learning.prelearner.connectors import Pipeline, check_finite, check_spaces
from offline_core.learning.prelearner.mapper import Mapper, without_seconds

OBSERVATIONS = gym.spaces.Dict({"position": gym.spaces.Box(-9, 9, (2,)), "mode": gym.spaces.Discrete(3)})
ACTIONS = gym.spaces.Discrete(4)
CHECKS = (partial(check_spaces, observation_space=OBSERVATIONS, action_space=ACTIONS), check_finite)


def episode(name: str, steps: int, *, seed: int = 0) -> Episode:
    rng = np.random.default_rng(seed)
    return Episode(
        eps_id=name,
        observations={"position": rng.normal(size=(steps + 1, 2)).astype(np.float32), "mode": rng.integers(0, 3, steps + 1)},
        actions=rng.integers(0, 4, steps),
        rewards=rng.normal(size=steps),
        extras={"action_logp": rng.normal(size=steps).astype(np.float32)},
        terminated=True,
        observation_space=OBSERVATIONS,
        action_space=ACTIONS,
    )


EPISODES = [episode("a", 3), episode("b", 1, seed=1), episode("c", 5, seed=2)]
AS_ROWS: dict[str, Callable[[list[Episode]], pa.Table]] = {"episodes": CODECS["episodes"].encode, "table": episodes_to_table}
WANTED = (columns.OBS, columns.ACTIONS, columns.REWARDS, columns.TERMINATEDS, "action_logp")


def made(rows: pa.Table, wanted=WANTED, connectors=(), *, format: str = "episodes", needs_next_obs: bool = False):
    mapper = Mapper(None, format, wanted, needs_next_obs, "/data/set", Pipeline(tuple(connectors), (OBSERVATIONS, ACTIONS)))
    return mapper(rows.select(mapper.stored_columns()))


def batch_of(steps: dict) -> EpisodeBatch:
    """One episode."""
    return EpisodeBatch.from_steps(steps, [nested.length(steps, "steps")])


@pytest.mark.parametrize("format", ["episodes", "table"])
def test_every_step_in_order_with_composite_columns_flattened(format: str) -> None:
    found = made(AS_ROWS[format](EPISODES), connectors=CHECKS, format=format)
    expected = {
        "obs/position": [e.observations["position"][:-1] for e in EPISODES],
        "obs/mode": [e.observations["mode"][:-1] for e in EPISODES],
        "actions": [e.actions for e in EPISODES],
        "rewards": [e.rewards for e in EPISODES],
        "terminateds": [np.arange(len(e)) == len(e) - 1 for e in EPISODES],
        "action_logp": [e.extras["action_logp"] for e in EPISODES],
    }
    assert found.columns.keys() == expected.keys()
    assert found.lengths.tolist() == [3, 1, 5] and not found.has_last
    for name, each in expected.items():
        np.testing.assert_array_equal(found[name], np.concatenate(each), err_msg=name)


@pytest.mark.parametrize("format", ["episodes", "table"])
def test_looking_ahead_adds_a_row_for_the_last_observation(format: str) -> None:
    found = made(AS_ROWS[format](EPISODES), format=format, needs_next_obs=True)
    for path, key in (("obs/position", "position"), ("obs/mode", "mode")):
        np.testing.assert_array_equal(found[path], np.concatenate([e.observations[key] for e in EPISODES]))
    assert found.has_last and found.offsets.tolist() == [0, 4, 6, 12]
    np.testing.assert_array_equal(found.of_steps("rewards"), np.concatenate([e.rewards for e in EPISODES]))


@pytest.mark.parametrize("order", [(0, 4, 8), (4, 0, 8), (8, 0, 4)])
def test_pieces_of_one_episode_that_are_read_together_stay_apart(order: tuple[int, ...]) -> None:
    """They lie in row groups of their own, which are read several at a time, in any order."""
    whole = episode("a", 12)
    some = [whole.slice(start, start + 3) for start in order]
    found = made(pa.concat_tables([episodes_to_table([piece]) for piece in some]), format="table", needs_next_obs=True)
    assert found.offsets.tolist() == [0, 4, 8, 12]
    np.testing.assert_array_equal(found["obs/position"], np.concatenate([piece.observations["position"] for piece in some]))


@pytest.mark.parametrize("format", ["episodes", "table"])
def test_only_what_is_wanted_is_read(format: str) -> None:
    found = made(AS_ROWS[format](EPISODES), (columns.OBS, columns.ACTIONS), format=format)
    assert found.columns.keys() == {"obs/position", "obs/mode", "actions"}


def test_connectors_run_one_after_the_other() -> None:
    def double(steps):
        return steps | {"rewards": 2 * steps["rewards"]}

    def shift(steps):
        return steps | {"rewards": steps["rewards"] + 1}

    rows = CODECS["episodes"].encode(EPISODES)
    plain = made(rows, ("rewards",))["rewards"]
    np.testing.assert_allclose(made(rows, ("rewards",), (double, shift))["rewards"], 2 * plain + 1)


def test_errors_name_the_dataset_and_the_column() -> None:
    bad = episode("bad", 4)
    bad.observations["position"][2, 1] = np.nan
    with pytest.raises(NonFiniteError, match=r"/data/set: .*obs/position.* in 1 of 8 steps"):
        made(CODECS["episodes"].encode([*EPISODES[:2], bad]), (columns.OBS,), (check_finite,))
    with pytest.raises(EpisodeError, match="no column 'values'"):
        made(CODECS["episodes"].encode(EPISODES), ("values",))
    mixed = Episode(eps_id="m", observations=np.zeros((3, 7), np.float32), actions=np.zeros(2, int), rewards=np.zeros(2))
    with pytest.raises(EpisodeError, match=r"/data/set: .*shape or structure"):
        made(
            pa.concat_tables(
                [
                    CODECS["episodes"].encode(EPISODES),
                    CODECS["episodes"].encode([mixed]).cast(CODECS["episodes"].encode(EPISODES).schema),
                ]
            )
        )


@pytest.mark.parametrize("format", ["episodes", "table"])
def test_the_observation_after_the_last_step_is_checked_too(format: str) -> None:
    bad, outside = episode("bad", 4), episode("outside", 2)
    bad.observations["position"][-1, 1] = np.nan
    outside.observations["mode"][-1] = 3
    with pytest.raises(NonFiniteError, match=r"/data/set: .*obs/position is NaN or infinite in 1 of 11"):
        made(AS_ROWS[format]([*EPISODES[:2], bad]), connectors=CHECKS, format=format, needs_next_obs=True)
    with pytest.raises(SpaceError, match=r"/data/set: .*obs/mode has values from 0 to 3, outside"):
        made(AS_ROWS[format]([*EPISODES, outside]), connectors=CHECKS, format=format, needs_next_obs=True)
    made(AS_ROWS[format]([*EPISODES, bad, outside]), connectors=CHECKS, format=format)  # nobody looks


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ({"obs": {"position": np.zeros((2, 3)), "mode": np.zeros(2, int)}}, "obs/position has shape"),
        ({"obs": np.zeros((2, 2))}, "Column obs has shape"),
        ({"actions": np.array([0, 4])}, "values from 0 to 4, outside"),
        ({"actions": np.array([-1, 3])}, "values from -1 to 3, outside"),
    ],
)
def test_what_does_not_fit_the_space_is_refused(steps: dict, message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        check_spaces(batch_of(steps), OBSERVATIONS, ACTIONS)


@pytest.mark.parametrize(
    ("space", "inside", "outside"),
    [
        (gym.spaces.Discrete(3, start=-1), [-1, 1], -2),
        (gym.spaces.MultiDiscrete([3, 9]), [[2, 0], [0, 8]], [7, 1]),
        (gym.spaces.MultiDiscrete([[2], [3]], start=[[1], [-1]]), [[[1], [-1]], [[2], [1]]], [[0], [-1]]),
        (gym.spaces.MultiDiscrete([200, 200], dtype=np.uint8), [[199, 0]], [255, 200]),
        (gym.spaces.MultiBinary(3), [[0, 1, 1]], [0, 5, 1]),
    ],
    ids=str,
)
def test_each_component_keeps_to_its_own_bounds(space: gym.Space, inside: list, outside: list) -> None:
    check = partial(check_spaces, observation_space=OBSERVATIONS, action_space=gym.spaces.Dict(a=space))
    check(batch_of({"actions": {"a": np.array(inside, space.dtype)}}))
    check(EpisodeBatch(columns={"actions": {"a": np.zeros((0, *space.shape), space.dtype)}}, offsets=np.zeros(1, int)))
    with pytest.raises(SpaceError, match=r"(?s)Column actions/a has values from .*, outside"):
        check(batch_of({"actions": {"a": np.array([*inside, outside], space.dtype)}}))


@pytest.mark.parametrize("needs_next_obs", [False, True])
@pytest.mark.parametrize("rows_a_block", [1, 2, 5, 7, 1000])
def test_blocks_that_ray_cuts_anywhere_become_whole_episodes_again(rows_a_block: int, needs_next_obs: bool) -> None:
    mapper = Mapper(None, "episodes", WANTED, needs_next_obs, "/data/set", Pipeline((), (OBSERVATIONS, ACTIONS)))
    mapped = [PrelearnerActor(mapper)(CODECS["episodes"].encode(some)) for some in (EPISODES[:2], EPISODES[2:])]
    blocks = [
        {name: column[start : start + rows_a_block] for name, column in block.items()}
        for block in mapped
        for start in range(0, len(block["actions"]), rows_a_block)
    ]
    empty = {name: column[:0] for name, column in mapped[0].items()}
    batches = list(whole_episodes([empty, *blocks, empty], has_last=needs_next_obs))
    expected = mapper(CODECS["episodes"].encode(EPISODES))
    found, *_ = without_seconds(EpisodeBatch.concatenate(batches))
    assert found.has_last is needs_next_obs and found.offsets.tolist() == expected.offsets.tolist()
    assert found.columns.keys() == expected.columns.keys()
    for name, column in expected.columns.items():
        np.testing.assert_array_equal(found[name], column, err_msg=name)
    assert list(whole_episodes([{}], has_last=False)) == []


def test_decoding_is_by_view_of_what_was_read() -> None:
    """The arrays of an episode are not copied out of its bytes."""
    item = CODECS["episodes"].encode(EPISODES)[columns.ITEM][0].as_py()
    assert not decode(item).observations["position"].flags.owndata
