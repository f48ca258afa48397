"""RLlib's old estimators as an oracle, where they are right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from offline_core.estimation.estimators import per_decision, weighted_per_decision
from offline_core.estimation.trajectories import Trajectories
from tests.estimation.chains import BEHAVIOUR, GAMMA, REWARDS, TARGET, played, trajectories

pytestmark = pytest.mark.filterwarnings("default")

DATA = played(30, seed=0)


def theirs(kind: str, *, pays: float | None = None) -> float:
    """The mean that RLlib's estimator of that name says; each step pays what the process does, or always `pays`."""
    from ray.rllib.offline.estimators import ImportanceSampling, WeightedImportanceSampling
    from ray.rllib.policy.sample_batch import SampleBatch

    base: Any = {"is": ImportanceSampling, "wis": WeightedImportanceSampling}[kind]

    class Estimator(base):  # type: ignore[misc]
        def __init__(self) -> None:
            """Without a policy of RLlib's."""
            self.gamma = GAMMA
            self.on_before_split_batch_by_episode({})

        def compute_action_probs(self, batch: Any) -> np.ndarray:
            return TARGET[batch["obs"], batch["actions"]]

    estimator = Estimator()
    batches = [
        SampleBatch(
            obs=states,
            actions=actions,
            rewards=REWARDS[states, actions] if pays is None else np.full(len(states), pays),
            action_prob=BEHAVIOUR[states, actions],
            eps_id=np.full(len(states), number),
        )
        for number, (states, actions) in enumerate(DATA)
    ]
    for batch in batches:
        estimator.peek_on_single_episode(batch)
    return float(np.mean([estimator.estimate_on_single_episode(batch)["v_target"] for batch in batches]))


def once(episodes: Trajectories) -> np.ndarray:
    return np.ones((1, len(episodes)))


def test_its_importance_sampling_is_by_step() -> None:
    episodes = trajectories(DATA)
    assert per_decision(episodes, once(episodes))[0] == pytest.approx(theirs("is"))


def test_its_weighted_one_leaves_out_who_has_ended_and_so_says_the_behaviours_return() -> None:
    """Where each step pays 1.."""
    episodes = trajectories(DATA)
    paid = Trajectories(episodes.lengths, np.ones(len(episodes.rewards)), episodes.log_ratios, GAMMA)
    assert theirs("wis", pays=1.0) == pytest.approx(paid.returns.mean())
    assert abs(weighted_per_decision(paid, once(paid))[0] - paid.returns.mean()) > 0.05
