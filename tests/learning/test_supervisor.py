"""What comes of a run does not depend on how far evaluations are behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from offline_core.evaluation.rollouts import Rollouts
from offline_core.learning import run
from offline_core.learning.evaluations import Evaluation, snapshot
from offline_core.learning.result import TrainingResult
from offline_core.learning.train import train_policy
from offline_core.policies.checkpoint import read_policy_manifest
from tests.learning.test_train import balancing_episodes, config, dataset_of

RETURNS = [10.0, 12.0, 11.0, 9.0, 13.0, 14.0, 8.0, 7.0]


class Behind:
    """Evaluations whose returns are known beforehand, and that are so many behind."""

    lag = 0

    def __init__(self, policy: object, *_: object, **__: object) -> None:
        self._policy = policy
        self._waiting: list[Evaluation] = []
        self._sent = 0

    @property
    def pending(self) -> list[tuple[int, dict[str, np.ndarray]]]:
        return [(e.updates, e.weights) for e in self._waiting]

    def submit(self, updates: int) -> None:
        returns = np.array([RETURNS[self._sent]])
        self._waiting.append(Evaluation(updates, snapshot(self._policy), Rollouts(returns, np.array([1]))))  # type: ignore[arg-type]
        self._sent += 1

    def finished(self, *, wait: bool) -> Iterator[Evaluation]:
        while len(self._waiting) > (0 if wait else self.lag):
            yield self._waiting.pop(0)

    def close(self) -> None: ...


def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lag: int, **evaluation: object) -> tuple[TrainingResult, str]:
    monkeypatch.setattr(run, "Evaluations", Behind)
    monkeypatch.setattr(Behind, "lag", lag)
    data = dataset_of(tmp_path / f"data-{lag}", balancing_episodes())
    settings = {"optimizer": {"updates_per_iteration": 5, "batch_size": 100, "max_epochs": 2}}
    result = train_policy(config(evaluation=evaluation, **settings), dataset=data, output=str(tmp_path / f"out-{lag}"))
    return result, read_policy_manifest(result.last_checkpoint).weights_sha256


@pytest.mark.parametrize(
    ("evaluation", "updates", "best"),
    [({"patience": 2}, 20, 12.0), ({"target_return": 11.5}, 10, 12.0), ({"target_return": 99.0}, 40, 14.0)],
    ids=["patience", "target", "neither"],
)
def test_how_far_evaluations_are_behind_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evaluation: dict, updates: int, best: float
) -> None:
    results, last = zip(*(trained(tmp_path, monkeypatch, lag, **evaluation) for lag in (0, 1, 2)), strict=True)
    for result in results:
        assert result.updates == updates
        assert result.metrics["episode_return_mean"] == best
        assert result.curve == results[0].curve
        assert result.losses == results[0].losses
    assert len(set(last)) == 1
