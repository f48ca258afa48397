"""What cannot be trained is said before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from offline_core.data.episodes import Episode
from offline_core.errors import ConfigError
from offline_core.learning.config import TrainingConfig
from offline_core.learning.train import train
from offline_core.runtime.config import parse
from tests.learning.datasets import dataset_of

VECTOR = gym.spaces.Box(-1, 1, (3,), np.float32)
BOX, TWO = gym.spaces.Box(-1, 1, (2,), np.float32), gym.spaces.Discrete(2)


def dataset(folder: Path, actions: gym.Space[Any]) -> str:
    VECTOR.seed(0), actions.seed(0)
    episode = Episode(
        eps_id="only",
        observations=np.stack([VECTOR.sample() for _ in range(9)]),
        actions=np.stack([actions.sample() for _ in range(8)]),
        rewards=np.arange(8.0),
        terminated=True,
        observation_space=VECTOR,
        action_space=actions,
    )
    return dataset_of(folder, [episode], spaces=(VECTOR, actions), environment=None)


@pytest.mark.parametrize(
    ("actions", "values", "message"),
    [
        (
            TWO,
            {"algorithm": "bc", "preset": "locomotion"},
            r"bounded_mean is for Box: leave it, or the preset that sets it, out",
        ),
        (
            TWO,
            {"algorithm": "td3_bc", "preset": "locomotion"},
            r"TD3BC .* cannot act in Discrete\(2\)\. Use one of bc, marwil, awac, iql, cql, bcq, dqn",
        ),
        (TWO, {"algorithm": "sac"}, r"SAC .* cannot act in Discrete\(2\)"),
        (BOX, {"algorithm": "dqn"}, r"DQN chooses among a list of actions; it cannot act in Box"),
        (BOX, {"algorithm": "bcq"}, r"BCQ chooses among a list of actions; it cannot act in Box"),
        (TWO, {"evaluation": {"environment": {"id": "nowhere:Robot-v0"}}}, r"'nowhere:Robot-v0': cannot import 'nowhere'"),
        (TWO, {"evaluation": {"environment": {"id": "CartPole-v1"}}}, r"observation space .*, environment CartPole-v1 has"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(
    tmp_path: Path, actions: gym.Space[Any], values: dict[str, Any], message: str
) -> None:
    config = parse(TrainingConfig, values)
    with pytest.raises(ConfigError, match=message):
        train(config, dataset=dataset(tmp_path / "data", actions), output=str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
