"""Files that RLlib itself recorded, against what plain msgpack and pyarrow say is in them."""

from __future__ import annotations

from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import gymnasium as gym
import msgpack
import msgpack_numpy
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from offline_core.data.episodes import Episode, decode, encode, episodes_to_table, table_to_episodes
from offline_core.data.episodes.arrow import read_column

RECORDINGS = Path(__file__).parents[2] / "data" / "rllib"

ENVIRONMENTS = {"cartpole_episodes": "CartPole-v1", "pendulum_episodes": "Pendulum-v1"}
SIZES = {"cartpole_episodes": (60, 23_486), "pendulum_episodes": (20, 4_000)}


@cache
def items(name: str) -> list[bytes]:
    files = sorted((RECORDINGS / name).rglob("*.parquet"))
    return [item for file in files for item in pq.read_table(file)["item"].to_pylist()]


@cache
def decoded(name: str) -> list[Episode]:
    return [decode(item) for item in items(name)]


def independently(item: bytes) -> dict[str, Any]:
    state = msgpack.unpackb(item, object_hook=msgpack_numpy.decode, strict_map_key=False)
    assert not state["observations"]["finalized"]
    return dict(state)


@pytest.mark.parametrize("name", SIZES)
def test_every_episode_is_there_and_whole(name: str) -> None:
    episodes = decoded(name)
    assert (len(episodes), sum(map(len, episodes))) == SIZES[name]
    assert len({episode.eps_id for episode in episodes}) == len(episodes)
    for episode in episodes:
        assert episode.validate() is episode
        assert episode.is_done


@pytest.mark.parametrize("name", SIZES)
def test_every_step_is_what_an_independent_decoder_gives(name: str) -> None:
    for item, episode in zip(items(name), decoded(name), strict=True):
        state = independently(item)
        assert episode.eps_id == state["id_"]
        assert (episode.t_started, episode.t) == (state["t_started"], state["t"])
        assert (episode.terminated, episode.truncated) == (bool(state["is_terminated"]), bool(state["is_truncated"]))
        assert episode.lookback == state["observations"]["lookback"] == 0
        observations, actions, rewards = (state[key]["data"] for key in ("observations", "actions", "rewards"))
        assert (len(episode.observations), len(episode)) == (len(observations), len(rewards))
        for t in range(len(observations)):
            assert episode.get_observations(t).tobytes() == observations[t].tobytes()
        for t in range(len(rewards)):
            assert episode.get_actions(t).tobytes() == actions[t].tobytes()
            assert episode.get_rewards(t) == rewards[t]
        assert episode.observations.dtype == observations[0].dtype
        assert episode.actions.dtype == actions[0].dtype
        assert episode.get_infos() == state["infos"]["data"]
        assert episode.extras.keys() == state["extra_model_outputs"].keys()
        for key, buffer in state["extra_model_outputs"].items():
            assert episode.get_extra(key).tolist() == np.stack(buffer["data"]).tolist()


@pytest.mark.parametrize("name", SIZES)
def test_the_spaces_are_those_of_the_environment(name: str) -> None:
    environment = gym.make(ENVIRONMENTS[name])
    for episode in decoded(name):
        assert episode.observation_space == environment.observation_space
        assert episode.action_space == environment.action_space
    environment.close()


@pytest.mark.parametrize("name", SIZES)
def test_what_we_write_of_them_is_the_same_and_smaller(name: str) -> None:
    for item, episode in zip(items(name), decoded(name), strict=True):
        data = encode(episode)
        again = decode(data)
        assert again == episode
        assert (again.observation_space, again.action_space) == (episode.observation_space, episode.action_space)
        assert len(data) < len(item)


@pytest.mark.parametrize("name", SIZES)
def test_what_we_write_of_them_any_msgpack_numpy_reads(name: str) -> None:
    for item, episode in zip(items(name)[:3], decoded(name)[:3], strict=True):
        theirs = independently(item)
        ours = msgpack.unpackb(encode(episode), object_hook=msgpack_numpy.decode)
        assert ours.keys() == theirs.keys()
        for key in ("observations", "actions", "rewards"):
            assert ours[key]["finalized"]
            assert ours[key].keys() == theirs[key].keys()
            assert ours[key]["data"].tolist() == np.stack(theirs[key]["data"]).tolist()
        assert ours["infos"] == {key: value for key, value in theirs["infos"].items() if key != "space"} | {"space": None}
        assert (ours["_observation_space"], ours["_action_space"]) == (theirs["_observation_space"], theirs["_action_space"])


@pytest.mark.parametrize("name", SIZES)
def test_all_of_them_are_one_table(name: str) -> None:
    table = episodes_to_table(decoded(name))
    assert table.num_rows == SIZES[name][1]
    assert table_to_episodes(table) == decoded(name)


# ---- The tables ------------------------------------------------------------------------------------------------------


def tables(name: str) -> list[pa.Table]:
    return [pq.read_table(file) for file in sorted((RECORDINGS / name).rglob("*.parquet"))]


def test_rays_tensor_columns_are_read_in_their_shapes() -> None:
    shapes = {"obs": (3,), "new_obs": (3,), "actions": (1,), "action_dist_inputs": (2,), "action_logp": (), "rewards": ()}
    rows = 0
    for table in tables("pendulum_table"):
        rows += table.num_rows
        for column, shape in shapes.items():
            found = read_column(table, column)
            assert found.shape == (table.num_rows, *shape)
            np.testing.assert_array_equal(found, table[column].to_pylist())  # arrays, once Ray's types are registered
            assert found.dtype == (np.float64 if column == "rewards" else np.float32)
    assert rows == 4000


def test_recorded_tables_become_episodes_once_their_steps_are_numbered() -> None:
    """RLlib writes no `t`; the rows of a file are in order, and an episode that goes on in the next file starts anew there."""
    steps = 0
    for table in tables("pendulum_table"):
        ids = table["eps_id"].to_pylist()
        t = [i for _, rows in groupby(ids) for i, _ in enumerate(rows)]
        episodes = table_to_episodes(table.append_column("t", pa.array(t)))
        assert [episode.eps_id for episode in episodes] == [eps_id for eps_id, _ in groupby(ids)]
        assert (
            np.concatenate([episode.get_observations(slice(1, None)) for episode in episodes]).tolist()
            == np.asarray(table["new_obs"].to_pylist()).tolist()
        )
        for episode in episodes:
            assert episode.extras.keys() == {"action_dist_inputs", "action_logp", "weights_seq_no"}
            assert episode.validate().agent_id is None
            steps += len(episode)
    assert steps == 4000
