"""Minari datasets that we wrote, as Minari reads them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import gymnasium as gym
import minari
import numpy as np
import pytest
from gymnasium import spaces

from offline_core.data.episodes import Episode, nested, table_to_episodes
from offline_core.data.formats.exports.minari import MinariSink
from offline_core.data.formats.sources.minari import MinariDataset
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError, EnvironmentNotFoundError, EpisodeError, SpaceError
from offline_core.runtime.config import EnvironmentSpec
from tests.data.datasets.factories import episode, found

ID = "cartpole/expert-v3"
SPACES: dict[str, spaces.Space[Any]] = {
    "box": spaces.Box(-np.inf, np.inf, (3,), np.float32),
    "scalar": spaces.Box(-1, 1, (), np.float64),
    "image": spaces.Box(0, 255, (40, 40, 3), np.uint8),
    "discrete": spaces.Discrete(5, start=2),
    "multi": spaces.Tuple([spaces.MultiDiscrete([3, 4]), spaces.MultiBinary(4)]),
    "dict": spaces.Dict({"z": spaces.Discrete(3), "a": spaces.Dict({"b": spaces.Box(-1, 1, (2, 2))})}),
    "text": spaces.Dict({"mission": spaces.Text(6, charset="αβ"), "x": spaces.Discrete(3)}),
}


def sampled(observation_space: spaces.Space[Any], action_space: spaces.Space[Any], number: int, **changes: Any) -> Episode:
    """Observations and actions that the spaces gave themselves."""
    observation_space.seed(number)
    action_space.seed(number)
    steps = 3 + number
    observations = [observation_space.sample() for _ in range(steps + 1)]
    actions = [action_space.sample() for _ in range(steps)]
    return episode(
        number,
        steps,
        observations=nested.stack(observations, "observations"),
        actions=nested.stack(actions, "actions"),
        observation_space=observation_space,
        action_space=action_space,
        **{"extras": {}} | changes,
    )


def write(root: Path, episodes: list[Episode], batch: int = 2, **changes: Any) -> None:
    with MinariSink(str(root), dataset_id=ID, **changes) as sink:
        for start in range(0, len(episodes), batch):
            sink.write(episodes[start : start + batch])


def read_back(root: Path) -> list[Episode]:
    return [e for table in MinariDataset(Location.of(str(root / ID))).batches() for e in table_to_episodes(table)]


@pytest.mark.parametrize(
    ("observations", "actions"), list(zip(SPACES, itertools.cycle(["box", "discrete", "multi", "dict"]), strict=False))
)
def test_minari_reads_what_we_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, observations: str, actions: str) -> None:
    some = [sampled(SPACES[observations], SPACES[actions], number) for number in range(5)]
    write(tmp_path, some)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    dataset = minari.load_dataset(ID)
    assert (dataset.observation_space, dataset.action_space) == (SPACES[observations], SPACES[actions])
    assert (dataset.total_episodes, dataset.total_steps, dataset.id) == (5, 3 + 4 + 5 + 6 + 7, ID)
    assert list(minari.list_local_datasets()) == [ID]
    for theirs, ours in zip(dataset, some, strict=True):
        as_arrays = theirs.observations
        if observations == "text":
            as_arrays = as_arrays | {"mission": np.array(as_arrays["mission"])}
        assert nested.equal(as_arrays, ours.observations)
        assert nested.equal(theirs.actions, ours.actions)
        np.testing.assert_array_equal(theirs.rewards, ours.rewards)
        assert theirs.terminations.tolist() == [False] * (len(ours) - 1) + [ours.terminated]
        assert theirs.truncations.tolist() == [False] * (len(ours) - 1) + [ours.truncated]


@pytest.mark.parametrize("observations", SPACES)
def test_we_read_what_we_write(tmp_path: Path, observations: str) -> None:
    custom = {"policy_id": "b1", "seeds": [1, 2], "zeros": bytes(3)}
    some = [
        sampled(
            SPACES[observations], SPACES["discrete"], number, agent_id="a", module_id="m", custom_data=custom if number else {}
        )
        for number in range(3)
    ]
    write(tmp_path, some)
    assert read_back(tmp_path) == some


def test_infos_of_every_step(tmp_path: Path) -> None:
    infos = [{"qpos": np.array([t, 0.5]), "inner": {"count": t, "note": "ab"[t % 2]}, "done": t == 4} for t in range(5)]
    some = [sampled(SPACES["box"], SPACES["discrete"], 1, infos=infos)]
    write(tmp_path, some)
    [theirs] = minari.MinariDataset(tmp_path / ID / "data")
    assert theirs.infos.keys() == {"qpos", "inner", "done"}
    np.testing.assert_array_equal(theirs.infos["qpos"], [[t, 0.5] for t in range(5)])
    assert theirs.infos["inner"]["count"].tolist() == [0, 1, 2, 3, 4]
    assert theirs.infos["done"].tolist() == [False, False, False, False, True]
    assert read_back(tmp_path) == some


def test_infos_of_some_steps_are_masked(tmp_path: Path) -> None:
    """As MuJoCo's are: what `reset` says is less than what `step` says."""
    infos: list[dict[str, Any]] = [{"x": 0.0}, {"x": 1.0, "cost": 2}, {}, {"cost": 3, "goal": {"hit": True}}]
    some = [sampled(SPACES["box"], SPACES["discrete"], 0, infos=infos)]
    write(tmp_path, some)
    [theirs] = minari.MinariDataset(tmp_path / ID / "data")
    assert theirs.infos["x"].tolist() == [0.0, 1.0, 0.0, 0.0]
    assert theirs.infos["_x"].tolist() == [True, True, False, False]
    assert theirs.infos["cost"].tolist() == [0, 2, 0, 3]
    assert theirs.infos["_cost"].tolist() == [False, True, False, True]
    assert theirs.infos["_goal"].tolist() == [False, False, False, True]
    assert read_back(tmp_path) == some


def test_extra_outputs_become_infos(tmp_path: Path) -> None:
    logits = {"left": np.arange(6.0).reshape(3, 2), "right": np.arange(3)}
    extras = {"action_logp": np.array([-1.0, -2.0, -3.0], np.float32), "logits": logits}
    write(tmp_path, [sampled(SPACES["box"], SPACES["discrete"], 0, extras=extras)])
    [theirs] = minari.MinariDataset(tmp_path / ID / "data")
    assert theirs.infos["action_logp"].tolist() == [0.0, -1.0, -2.0, -3.0]
    assert theirs.infos["action_logp"].dtype == np.float32
    assert theirs.infos["_action_logp"].tolist() == [False, True, True, True]
    [ours] = read_back(tmp_path)
    assert [info.get("action_logp") for info in ours.get_infos()] == [None, -1.0, -2.0, -3.0]
    assert ours.get_infos(2)["logits"]["left"].tolist() == [2.0, 3.0]


def test_the_environment_can_be_recovered(tmp_path: Path) -> None:
    env = gym.make("CartPole-v1")
    some = [sampled(env.observation_space, env.action_space, 0)]
    write(tmp_path, some, environment=EnvironmentSpec(id="CartPole-v1", kwargs={"max_episode_steps": 33}))
    recovered = minari.MinariDataset(tmp_path / ID / "data").recover_environment()
    assert recovered.spec is not None
    assert (recovered.spec.id, recovered.spec.max_episode_steps) == ("CartPole-v1", 33)


# What is refused, and what is left then.


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"t_started": 4}, "is a piece that starts at step 4"),
        ({"infos": [{"x": [1]}, {"x": [1, 2]}, {"x": [1]}, {"x": [1]}]}, "infos of episode episode-0000/x are not tuples"),
        ({"infos": [{"x": object()}] * 4}, "neither numbers nor text"),
        ({"infos": [{"a/b": 1}] * 4}, r"keys \['a/b'\]"),
        ({"infos": [{"x": 1, "_x": 2}] * 4}, "look like masks"),
        ({"infos": [{"logp": 1}] * 4, "extras": {"logp": np.ones(3)}}, "both infos and an extra output 'logp'"),
        ({"custom_data": {"weights": bytes(70_000)}}, "bytes of custom data"),
        ({"rewards": np.ones(2)}, "not whole"),
    ],
)
def test_what_minari_cannot_hold(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    good = sampled(SPACES["box"], SPACES["discrete"], 1)
    with pytest.raises(EpisodeError, match=message):
        write(tmp_path, [good, sampled(SPACES["box"], SPACES["discrete"], 0, **changes)], batch=1)
    assert found(tmp_path) == []


def test_one_pair_of_spaces(tmp_path: Path) -> None:
    one, other = (sampled(SPACES[name], SPACES["discrete"], i) for i, name in enumerate(("box", "discrete")))
    with pytest.raises(SpaceError, match="episode-0001 has observation space Discrete"):
        write(tmp_path, [one, other])
    with pytest.raises(SpaceError, match="need both spaces"):
        write(tmp_path, [episode(0, observation_space=None)])
    assert found(tmp_path) == []


@pytest.mark.parametrize("dataset_id", ["cartpole", "a b-v0", "", "x-v"])
def test_ids(tmp_path: Path, dataset_id: str) -> None:
    with pytest.raises(ConfigError, match="is not a Minari id"):
        MinariSink(str(tmp_path), dataset_id=dataset_id)


def test_environments(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentNotFoundError, match="NoSuch-v0"):
        MinariSink(str(tmp_path), dataset_id=ID, environment=EnvironmentSpec(id="NoSuch-v0"))
    with pytest.raises(ConfigError, match="wrong"):
        MinariSink(str(tmp_path), dataset_id=ID, environment=EnvironmentSpec(id="CartPole-v1", kwargs={"wrong": 1}))
