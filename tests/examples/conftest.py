"""A recording to learn from."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from offline_core.data.episodes import Episode
from offline_core.runtime.config import EnvironmentSpec
from tests.learning.datasets import dataset_of

CARTPOLE = gym.make("CartPole-v1")


@pytest.fixture
def unpublished(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cards are written beside the data, and not sent to Prefect: tasks can be called as functions."""
    monkeypatch.setattr("tasks.artifacts.create_markdown_artifact", lambda *_, **__: None)


@pytest.fixture(scope="session")
def balancing(tmp_path_factory: pytest.TempPathFactory) -> str:
    """40 episodes of CartPole, played by a simple good controller whose every tenth action is random; 200 steps at most."""
    rng = np.random.default_rng(0)
    return dataset_of(
        tmp_path_factory.mktemp("balancing") / "recording",
        [balanced(number, rng) for number in range(40)],
        environment=EnvironmentSpec(id="CartPole-v1"),
    )


def balanced(number: int, rng: np.random.Generator) -> Episode:
    observations, actions, terminated = [CARTPOLE.reset(seed=number)[0]], [], False
    while not terminated and len(actions) < 200:
        wanted = int(observations[-1] @ [0.1, 0.3, 5.0, 1.0] > 0)
        actions.append(int(rng.integers(2)) if rng.random() < 0.1 else wanted)
        observation, _, terminated, _, _ = CARTPOLE.step(actions[-1])
        observations.append(observation)
    return Episode(
        eps_id=f"episode-{number}",
        observations=np.stack(observations),
        actions=np.array(actions),
        rewards=np.ones(len(actions)),
        terminated=terminated,
        truncated=not terminated,
        observation_space=CARTPOLE.observation_space,
        action_space=CARTPOLE.action_space,
    )
