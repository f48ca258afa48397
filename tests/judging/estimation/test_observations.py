"""A policy that remembers makes of recorded observations what it made of them at play."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from offline_core.data.episodes import EpisodeBatch
from offline_core.judging.estimation import observations
from offline_core.judging.estimation.observations import Observations, rows_at_a_time
from offline_core.judging.estimation.target import distribution_inputs
from offline_core.policies.config import NetworkConfig
from offline_core.policies.encoder import Encoder
from offline_core.policies.policy import Policy

LENGTHS = [3, 1, 7, 2]
SPACE = spaces.Dict({"a": spaces.Box(-1, 1, (2,), np.float32), "b": spaces.Discrete(3)})


@pytest.mark.parametrize("at_a_time", [8192, 4])
@pytest.mark.parametrize("network", [{}, {"frames": 3}, {"recurrent": "lstm"}, {"recurrent": "gru"}])
def test_as_at_play(network: dict[str, object], at_a_time: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observations, "ROWS_AT_A_TIME", at_a_time)
    policy = Policy(SPACE, spaces.Discrete(4), NetworkConfig(hidden_sizes=[8], **network), seed=1).eval()
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-1, 1, (sum(LENGTHS), 2)).astype(np.float32), rng.integers(3, size=sum(LENGTHS))
    played = []
    for start, length in zip(np.cumsum([0, *LENGTHS[:-1]]), LENGTHS, strict=True):
        state = policy.initial_state(1)
        for t in range(length):
            row = slice(start + t, start + t + 1)
            chosen = policy.choose({"a": a[row], "b": b[row]}, state, explore=False)
            state = chosen.state
            played.append(chosen.extras["action_dist_inputs"][0])
    batch = EpisodeBatch.from_steps({"obs": {"a": a, "b": b}}, LENGTHS).flat()
    found = distribution_inputs(policy, Observations(batch, SPACE))
    np.testing.assert_allclose(found, np.stack(played), atol=1e-6)


def test_large_observations_are_looked_at_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = Encoder(spaces.Box(-1, 1, (4,)), normalize=False)
    image = Encoder(spaces.Box(0, 255, (64, 64, 4), np.uint8), normalize=False)
    assert rows_at_a_time(numbers.size) == 8192
    assert rows_at_a_time(image.size) == 2**26 // (4 * 64 * 64 * 4) == 1024 and rows_at_a_time(image.size, frames=4) == 256
    monkeypatch.setattr(observations, "BYTES_AT_A_TIME", 4 * 4 * 3)
    assert rows_at_a_time(numbers.size) == 3 and rows_at_a_time(image.size) == 1
