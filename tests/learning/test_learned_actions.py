"""The actions of a policy beside the recorded ones: what is said of one that always acts alike, and of none else."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from offline_core.data.episodes import Episode
from offline_core.learning.config import TrainingConfig
from offline_core.learning.learned_actions import unlearned, warnings_of_actions
from offline_core.learning.result import TrainingResult
from offline_core.learning.steps import BatchSpec
from offline_core.learning.train import train
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy
from offline_core.runtime.config import parse
from tests.learning.algorithms.making import TWO, VECTOR, made_steps
from tests.learning.datasets import dataset_of

NUMBER = gym.spaces.Box(-np.inf, np.inf, ())
RAMP = np.linspace(0, 90, 50)


@pytest.mark.parametrize(
    ("own", "recorded", "is_told"),
    [
        (np.full(50, 5.25), RAMP, True),
        (5.25 + RAMP / 90, RAMP, True),  # a hundredth of the spread
        (RAMP / 3, RAMP, False),
        (np.full(50, 5.25), np.full(50, 50.0), False),  # constant
        (np.full(50, 50.0), 50 + 1e-4 * RAMP, False),  # constant, with noise
        (np.full(50, 0.0), np.append(np.zeros(49), 90.0), False),  # constant, with one fault
    ],
)
def test_numbers_that_are_all_alike_are_told_where_the_recorded_ones_vary(
    own: np.ndarray, recorded: np.ndarray, is_told: bool
) -> None:
    told = unlearned(NUMBER, {"actions": own}, {"actions": recorded})
    assert bool(told) == is_told


def test_the_ranges_are_named_of_the_number_that_was_not_learned() -> None:
    both = gym.spaces.Box(-np.inf, np.inf, (2,))
    [told] = unlearned(both, {"actions": np.stack([RAMP, 0 * RAMP + 5.25], 1)}, {"actions": np.stack([RAMP, RAMP], 1)})
    assert told.startswith("The policy's actions[1] run from 5.25 to 5.25, the recorded ones from 0 to 90: it has not learned")


@pytest.mark.parametrize(
    ("own", "recorded", "is_told"),
    [
        ([1] * 10, [0, 1] * 5, True),
        ([1] * 10, [1] * 10, False),
        ([1] * 10, [1] * 9 + [0], False),  # nearly always
        ([1] * 9 + [0], [0, 1] * 5, False),
    ],
)
def test_one_choice_is_told_where_several_were_recorded(own: list[int], recorded: list[int], is_told: bool) -> None:
    told = unlearned(TWO, {"actions": np.array(own)}, {"actions": np.array(recorded)})
    assert bool(told) == is_told


@pytest.mark.parametrize(
    ("chance", "begins"), [(0.52, "The policy's likeliest actions are always 1"), (0.9, "The policy's actions")]
)
def test_a_clone_of_what_drew_by_lot_is_not_told_to_have_learned_nothing(chance: float, begins: str) -> None:
    """Its likeliest action alone is always the same; it draws the others as often as they were recorded."""
    [told] = unlearned(TWO, {"actions": np.ones(10)}, {"actions": np.array([0, 1] * 5)}, chance=chance)
    assert told.startswith(begins)
    assert ("If what acted drew them by lot, it has learned that" in told) == (chance < 0.6)


@pytest.mark.parametrize(
    ("network", "spec"),
    [
        (NetworkConfig(hidden_sizes=[4]), BatchSpec(())),
        (NetworkConfig(hidden_sizes=[4], frames=2), BatchSpec((), frames=2)),
        (NetworkConfig(hidden_sizes=[4], recurrent="gru"), BatchSpec((), sequence_steps=4, burn_in_steps=2)),
    ],
)
def test_policies_that_remember_are_asked_with_what_came_before(network: NetworkConfig, spec: BatchSpec) -> None:
    policy = Policy(VECTOR, TWO, network).eval()
    for parameter in policy.head.parameters():
        parameter.data.zero_()
    steps = made_steps([9, 14, 30], [True, True, False])
    [told] = warnings_of_actions(policy, steps, spec)
    assert "The policy's likeliest actions are always 0, at a chance of 50 %" in told


def plant(folder: Path) -> str:
    """Valve positions from 0 to 100 in an unbounded space, which depend on what was seen."""
    rng = np.random.default_rng(0)
    episodes = []
    for number in range(8):
        observations = rng.uniform(0, 1, (26, 2)).astype(np.float32)
        actions = (100 * observations[:-1, 0]).astype(np.float32)
        episodes.append(
            Episode(eps_id=str(number), observations=observations, actions=actions, rewards=-actions, truncated=True)
        )
    spaces = (gym.spaces.Box(-np.inf, np.inf, (2,)), gym.spaces.Box(-np.inf, np.inf, ()))
    return dataset_of(folder, episodes, spaces=spaces, environment=None)


@pytest.mark.parametrize(("updates", "is_told"), [(2, True), (300, False)])
def test_a_training_that_learned_nothing_says_so_and_where_to_go(tmp_path: Path, updates: int, is_told: bool) -> None:
    dataset = plant(tmp_path / "plant")
    values = {
        "algorithm": "bc",
        "bc": {"squared_error": True},
        "network": {"hidden_sizes": [32]},
        "data": {"prelearners": 0},
        "optimizer": {"max_updates": updates, "batch_size": 200, "learning_rate": 0.01},
    }
    result: TrainingResult = train(parse(TrainingConfig, values), dataset=dataset, output=str(tmp_path / "policy"))
    assert result.acts_alike == is_told == bool(result.warnings)
    told = f"'offline outliers {dataset}' proposes parameters."
    assert (told in " ".join(result.warnings)) == is_told
    assert result.card().next.startswith("offline outliers") == is_told
