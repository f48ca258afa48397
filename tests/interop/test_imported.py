"""What was imported from RLlib's tables, JSON files and episodes, RLlib reads again, as whole episodes where it wrote rows."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgpack
import msgpack_numpy
import numpy as np
import pytest

from offline_core.data.datasets.dataset import Dataset, open_dataset
from offline_core.data.episodes import columns
from offline_core.data.importing.config import ImportConfig
from offline_core.data.importing.importing import import_data
from tests.cases import slow_but

if any(importlib.util.find_spec(name) is None for name in ("ray", "tree", "scipy")):
    pytest.skip("RLlib needs the 'interop' extra: pip install -e '.[interop]'", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore")  # RLlib's own

FOLDERS = ["cartpole_episodes", "cartpole_table_packed", "cartpole_json_plain", "pendulum_table"]


def imported(source: Path, output: Path, format: str) -> Dataset:
    environment = {"id": "Pendulum-v1"} if source.name == "pendulum_table" else None  # to whose bounds actions are scaled
    config = ImportConfig.model_validate({"format": format, "environment": environment})
    result = import_data(config, source=str(source), output=str(output))
    return open_dataset(result.dataset.uri, result.dataset.version)


@pytest.mark.parametrize("name", slow_but(FOLDERS, "cartpole_episodes", "pendulum_table"))
def test_rllib_reads_imported_episodes(rllib_recordings: Path, tmp_path: Path, name: str) -> None:
    from ray.rllib.env.single_agent_episode import SingleAgentEpisode

    dataset = imported(rllib_recordings / name, tmp_path, "episodes")
    items = [item for table in dataset.tables([columns.ITEM]) for item in table[columns.ITEM].to_pylist()]
    ours = list(dataset.episodes())
    assert len(items) == len(ours) > 0
    for item, own in zip(items, ours, strict=True):
        theirs = SingleAgentEpisode.from_state(msgpack.unpackb(item, object_hook=msgpack_numpy.decode))
        assert (theirs.id_, len(theirs), theirs.is_terminated, theirs.is_truncated, theirs.t_started) == (
            own.eps_id,
            len(own),
            own.terminated,
            own.truncated,
            0,
        )
        assert theirs.get_return() == pytest.approx(own.return_)
        np.testing.assert_array_equal(theirs.get_observations(), own.observations)
        np.testing.assert_array_equal(theirs.get_actions(), own.actions)
        for extra, values in own.extras.items():
            np.testing.assert_array_equal(theirs.get_extra_model_outputs(extra), values)


@pytest.mark.usefixtures("ray_up")
@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.slow
def test_rllib_reads_imported_tables(rllib_recordings: Path, tmp_path: Path, name: str) -> None:
    """Its prelearner makes an episode of each row; together they hold every step once."""
    import ray.data
    from ray.rllib.algorithms.bc import BCConfig
    from ray.rllib.offline.offline_prelearner import OfflinePreLearner

    dataset = imported(rllib_recordings / name, tmp_path, "table")
    wanted = [columns.EPS_ID, columns.OBS, columns.NEW_OBS, columns.ACTIONS, columns.REWARDS]
    rows = ray.data.read_parquet(dataset.paths, columns=[*wanted, columns.TERMINATEDS, columns.TRUNCATEDS])
    theirs: dict[str, list[Any]] = {}
    for batch in rows.iter_batches(batch_size=None):
        prelearner: Any = SimpleNamespace(config=BCConfig())
        for step in OfflinePreLearner._map_to_episodes(prelearner, batch)["episodes"]:
            theirs.setdefault(step.id_, []).append(step)
    ours = {e.eps_id: e for e in dataset.episodes()}
    assert theirs.keys() == ours.keys()
    for eps_id, steps in theirs.items():
        own = ours[eps_id]
        assert [len(step) for step in steps] == [1] * len(own)
        np.testing.assert_array_equal([step.get_observations(0) for step in steps], own.observations[:-1])
        np.testing.assert_array_equal([step.get_observations(-1) for step in steps], own.observations[1:])
        np.testing.assert_array_equal([step.get_rewards(0) for step in steps], own.rewards)
        assert [step.is_terminated for step in steps] == [False] * (len(own) - 1) + [own.terminated]
        assert steps[-1].is_truncated == own.truncated


@pytest.mark.parametrize(("normalize", "played"), [(None, 1.06), (False, 0.53)])
def test_rllib_plays_what_it_learned_of_a_box_as_it_is_only_unless_it_normalises(normalize: bool | None, played: float) -> None:
    """Recordings here are in the environment's units. By default RLlib scales what it learned of them once more."""
    import gymnasium as gym
    from ray.rllib.algorithms.bc import BCConfig
    from ray.rllib.connectors.module_to_env import NormalizeAndClipActions
    from ray.rllib.env.single_agent_episode import SingleAgentEpisode

    space = gym.spaces.Box(-2.0, 2.0, (1,))
    config = BCConfig() if normalize is None else BCConfig().environment(normalize_actions=normalize)
    connector = NormalizeAndClipActions(
        space, space, normalize_actions=config.normalize_actions, clip_actions=config.clip_actions
    )
    learned = {"actions": [np.array([0.53], np.float32)]}
    done = connector(rl_module=None, batch=learned, episodes=[SingleAgentEpisode()], explore=False)
    sent = done.get("actions_for_env", done["actions"])
    np.testing.assert_allclose(np.asarray(sent).ravel(), [played], rtol=1e-6)
