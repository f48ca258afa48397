"""Q beside the returns that were recorded: what is said of critics that do not know their scale, and of none else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from offline_core.data.episodes import columns
from offline_core.learning.config import TrainingConfig
from offline_core.learning.returns import RecordedReturns, q_warnings, recorded_returns
from offline_core.learning.steps import Steps
from offline_core.learning.train import train
from offline_core.runtime.config import parse
from tests.learning.algorithms.making import made_steps
from tests.learning.test_rewards import recorded


def steps_of(lengths: list[int], terminated: list[bool], rewards: list[float]) -> Steps:
    steps = made_steps(lengths, terminated)
    steps.columns[columns.REWARDS][steps.rows] = torch.tensor(rewards).double()
    return steps


def test_what_follows_steps_of_whole_episodes() -> None:
    found = recorded_returns(steps_of([3, 1], [True, True], [1.0, 2.0, 4.0, 8.0]), 0.5)
    returns = [1 + 1 + 1, 2 + 2, 4, 8]
    assert found == pytest.approx((np.mean(returns), np.std(returns), 8.0))


def test_an_open_episode_goes_on_with_the_mean() -> None:
    found = recorded_returns(steps_of([50, 70], [False, False], [2.0] * 120), 0.9)
    assert found is not None and found == pytest.approx((20.0, 0.0, 20.0), abs=1e-5), "2 a step for ever"
    assert recorded_returns(steps_of([5], [False], [2.0] * 5), 1.0) is None, "no discount, and no end"


@pytest.mark.parametrize(
    ("q", "recorded", "says"),
    [
        (50.0, RecordedReturns(1100.0, 100.0, 1300.0), "have not learned how much"),
        (1000.0, RecordedReturns(1100.0, 100.0, 1300.0), ""),
        (1250.0, RecordedReturns(1100.0, 100.0, 1300.0), ""),
        (4000.0, RecordedReturns(1100.0, 100.0, 1300.0), "promise more"),
        (-50.0, RecordedReturns(-130.0, 100.0, -1.0), ""),  # better than what was recorded
        (-400.0, RecordedReturns(-130.0, 100.0, -1.0), "have not learned how much"),
        (0.1, RecordedReturns(0.18, 0.38, 1.0), ""),  # clicks
        (-0.7484, RecordedReturns(-1100.0, 30.0, -1033.0), "have not learned how much"),  # costs, and Q where it began
        (0.3, RecordedReturns(-1100.0, 30.0, -1033.0), "have not learned how much"),
        (-700.0, RecordedReturns(-1100.0, 30.0, -1033.0), "promise more"),
    ],
)
def test_a_q_on_another_scale_than_the_returns_is_told(q: float, recorded: RecordedReturns, says: str) -> None:
    found = q_warnings(q, recorded, scale=1.0, algorithm="dqn")
    assert bool(found) == bool(says)
    assert says in "".join(found)


@pytest.mark.parametrize(
    ("scale", "says"),
    [
        (1.0, "set data.rewards.scale to return_range."),
        ("return_range", "set data.rewards.scale, which is return_range, to a smaller number."),
    ],
)
def test_what_was_set_already_is_not_proposed(scale: float | str, says: str) -> None:
    [found] = q_warnings(50.0, RecordedReturns(1100.0, 100.0, 1300.0), scale=scale, algorithm="dqn")
    assert found.endswith(f"or {says}")


@pytest.mark.parametrize(("algorithm", "proposed"), [("dqn", "(iql, cql, bc)"), ("cql", "(iql, bc)"), ("iql", "(cql, bc)")])
def test_the_algorithm_in_use_is_not_proposed(algorithm: str, proposed: str) -> None:
    [found] = q_warnings(4000.0, RecordedReturns(1100.0, 100.0, 1300.0), scale=1.0, algorithm=algorithm)
    assert found.endswith(f"nearer to the data {proposed}.")


@pytest.mark.parametrize(("algorithm", "says"), [("dqn", "have not learned how much"), ("bc", "")])
def test_a_training_compares_its_q_with_the_recorded_returns(
    tmp_path: Path, algorithm: str, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = recorded(tmp_path / "data", [[1000.0, 1000.0], [2000.0]])
    values = {"algorithm": algorithm, "data": {"prelearners": 0}, "optimizer": {"max_updates": 2, "batch_size": 3}}
    result = train(parse(TrainingConfig, values), dataset=dataset, output=str(tmp_path / "policy"))
    assert bool(result.warnings) == bool(says)
    assert says in " ".join(result.warnings) and says in caplog.text
    assert result.recorded_return == (pytest.approx((1990 + 1000 + 2000) / 3) if says else None)
