"""What is written here, RLlib reads; RLlib itself is the judge."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path
from typing import Any, Literal

import msgpack
import msgpack_numpy
import numpy as np
import pytest

from offline_core.data.datasets.dataset import open_dataset
from offline_core.data.datasets.manifest import Operation
from offline_core.data.environments.vector_env import spaces_of
from offline_core.data.episodes import Episode, columns, encode
from offline_core.policies.checkpoint import save_policy
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy
from offline_core.policies.recording.config import RecordingConfig
from offline_core.policies.recording.record import record
from offline_core.runtime.config import EnvironmentSpec
from tests.cases import slow_but

if any(importlib.util.find_spec(name) is None for name in ("ray", "tree", "scipy")):
    pytest.skip("RLlib needs the 'interop' extra: pip install -e '.[interop]'", allow_module_level=True)

pytestmark = [
    pytest.mark.usefixtures("ray_up"),
    pytest.mark.filterwarnings("ignore"),  # RLlib's own
]


Format = Literal["episodes", "table"]


def recorded(folder: Path, policy: str, format: Format) -> str:
    config = RecordingConfig(episodes=40, num_recorders=1, format=format, envs_per_recorder=8)
    return record(config, policy=policy, output=str(folder)).dataset.uri


def as_rllib_reads(item: bytes) -> Any:
    from ray.rllib.env.single_agent_episode import SingleAgentEpisode

    return SingleAgentEpisode.from_state(msgpack.unpackb(item, object_hook=msgpack_numpy.decode))


def assert_same(theirs: Any, ours: Episode) -> None:
    assert theirs.id_ == ours.eps_id
    assert len(theirs) == len(ours)
    np.testing.assert_array_equal(theirs.get_observations(), ours.observations)
    np.testing.assert_array_equal(theirs.get_actions(), ours.actions)
    np.testing.assert_array_equal(theirs.get_rewards(), ours.rewards)
    for name, values in ours.extras.items():
        np.testing.assert_array_equal(theirs.get_extra_model_outputs(name), values)
    assert (theirs.is_terminated, theirs.is_truncated, theirs.t_started, theirs.t) == (
        ours.terminated,
        ours.truncated,
        ours.t_started,
        ours.t,
    )
    assert theirs.observation_space == ours.observation_space
    assert theirs.action_space == ours.action_space
    assert len(theirs.get_infos()) == len(ours) + 1


def test_rllib_loads_every_recorded_episode_as_it_was(tmp_path: Path, cartpole_policy: str) -> None:
    dataset = open_dataset(recorded(tmp_path, cartpole_policy, "episodes"))
    items = [item for table in dataset.tables([columns.ITEM]) for item in table[columns.ITEM].to_pylist()]
    ours = list(dataset.episodes())
    assert len(items) == len(ours) == 40
    for item, episode in zip(items, ours, strict=True):
        assert_same(as_rllib_reads(item), episode)


def test_rllib_loads_its_own_recordings_after_they_went_through_here(rllib_recordings: Path) -> None:
    for folder in ("cartpole_episodes", "pendulum_episodes"):
        for episode in open_dataset(str(rllib_recordings / folder)).episodes():
            assert_same(as_rllib_reads(encode(episode)), episode)


@pytest.mark.slow
@pytest.mark.parametrize("format", ["episodes", "table"])
def test_rllibs_bc_trains_on_a_dataset_written_here(tmp_path: Path, cartpole_policy: str, format: Format) -> None:
    import gymnasium as gym
    from ray.rllib.algorithms.bc import BCConfig

    env = gym.make("CartPole-v1")
    # The folder that episodes are in, not the dataset's: what is no Parquet there is not theirs to read.
    config = (
        BCConfig()
        .environment(observation_space=env.observation_space, action_space=env.action_space)
        .learners(num_learners=0)
        .training(train_batch_size_per_learner=64)
        .offline_data(
            input_=[f"{recorded(tmp_path, cartpole_policy, format)}/cartpole-v1"],
            input_read_episodes=format == "episodes",
            **({"input_read_batch_size": 20} if format == "episodes" else {}),
            dataset_num_iters_per_learner=1,
            map_batches_kwargs={"concurrency": 1, "num_cpus": 0.5},
        )
        .evaluation(evaluation_interval=None)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        algorithm = config.build_algo()
        try:
            losses = [algorithm.train()["learners"]["default_policy"]["total_loss"] for _ in range(3)]
        finally:
            algorithm.stop()
    assert np.isfinite(losses).all()


@pytest.mark.slow
@pytest.mark.parametrize("format", slow_but(["episodes", "table"], "episodes"))
def test_rllib_reads_observations_with_masks_of_actions(tmp_path: Path, format: Format) -> None:
    environment = EnvironmentSpec(id="tests.policies.rollouts.games:Strict-v0", action_mask=True)
    policy = Policy(*spaces_of(environment), NetworkConfig(hidden_sizes=[8]))
    save_policy(policy, str(tmp_path / "policy"), operation=Operation(name="test"), environment=environment)
    dataset = open_dataset(recorded(tmp_path / "data", str(tmp_path / "policy"), format))
    for ours in dataset.episodes():
        theirs = as_rllib_reads(encode(ours))
        assert theirs.observation_space == ours.observation_space
        masks = theirs.get_observations()["action_mask"]
        np.testing.assert_array_equal(masks, ours.observations["action_mask"])
        assert masks[np.arange(len(theirs)), theirs.get_actions()].all()
