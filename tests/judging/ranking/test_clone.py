from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import offline_core as offline
from offline_core.data.episodes import Episode
from tests.data.datasets.factories import write_dataset


@pytest.mark.parametrize("bounds", [np.inf, 12.0], ids=["unbounded", "bounded"])
@pytest.mark.parametrize("noise", [0.0, 1.0], ids=["by the state", "by lot"])
def test_how_far_the_state_says_what_was_done(bounds: float, noise: float, tmp_path: Path) -> None:
    """Actions of an unbounded Box are in units of their own: here up to 12."""
    rng = np.random.default_rng(5)
    spaces = gym.spaces.Box(-1, 1, (1,), np.float32), gym.spaces.Box(-bounds, bounds, (1,), np.float32)
    episodes = []
    for number in range(100):
        seen = rng.uniform(-1, 1, (41, 1)).astype(np.float32)
        lot = rng.uniform(-12, 12, (40, 1))
        done = ((1 - noise) * 4 * seen[:-1] + noise * lot).astype(np.float32)
        episodes.append(
            Episode(
                eps_id=str(number),
                observations=seen,
                actions=done,
                rewards=rng.normal(size=40),
                terminated=True,
                observation_space=spaces[0],
                action_space=spaces[1],
            )
        )
    result = offline.outliers(write_dataset(tmp_path / "data", episodes), output=tmp_path / "out", updates=500, max_steps=4_000)
    told = result.measures.stochasticity
    assert told is not None and (told > 0.8 if noise else told < 0.2)
