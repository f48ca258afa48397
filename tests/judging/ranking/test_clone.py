from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import polars as pl
import pytest

import offline_core as offline
from offline_core.data.episodes import Episode
from offline_core.judging.ranking.result import OutlierResult
from tests.data.datasets.factories import write_dataset

BOUNDS = pytest.mark.parametrize("bounds", [np.inf, 12.0], ids=["unbounded", "bounded"])


def ranked(folder: Path, bounds: float, *, noise: float, wrong: float = 0.0) -> OutlierResult:
    """Of 100 episodes whose actions follow the state, or are by lot between -12 and 12; those of the eighth are shifted."""
    rng = np.random.default_rng(5)
    spaces = gym.spaces.Box(-1, 1, (1,), np.float32), gym.spaces.Box(-bounds, bounds, (1,), np.float32)
    episodes = []
    for number in range(100):
        seen = rng.uniform(-1, 1, (41, 1)).astype(np.float32)
        done = (1 - noise) * (4 * seen[:-1] + rng.normal(0, 0.1, (40, 1))) + noise * rng.uniform(-12, 12, (40, 1))
        done += wrong * (number == 7)
        episodes.append(
            Episode(
                eps_id=str(number),
                observations=seen,
                actions=done.astype(np.float32),
                rewards=rng.normal(size=40),
                terminated=True,
                observation_space=spaces[0],
                action_space=spaces[1],
            )
        )
    return offline.outliers(write_dataset(folder / "data", episodes), output=folder / "out", updates=500, max_steps=4_000)


@BOUNDS
@pytest.mark.parametrize("noise", [0.0, 1.0], ids=["by the state", "by lot"])
def test_how_far_the_state_says_what_was_done(bounds: float, noise: float, tmp_path: Path) -> None:
    """Actions of an unbounded Box are in units of their own: here up to 12."""
    told = ranked(tmp_path, bounds, noise=noise).measures.stochasticity
    assert told is not None and (told > 0.8 if noise else told < 0.2)


@pytest.mark.parametrize(("bounds", "wrong"), [(np.inf, 7.0), (12.0, 7.0), (np.inf, 1_000.0)])
def test_actions_that_no_other_episode_has_are_found(bounds: float, wrong: float, tmp_path: Path) -> None:
    result = ranked(tmp_path, bounds, noise=0.0, wrong=wrong)
    surprise = pl.read_parquet(result.scores)["action surprise"].to_numpy()
    others = np.delete(surprise, 7)
    assert result.outliers[0].eps_id == "7" and surprise[7] > others.mean() + 10 * others.std()
