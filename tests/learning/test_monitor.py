"""What comes of a run does not depend on how far evaluations are behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from offline_core.data.store.location import Location
from offline_core.learning import trainer
from offline_core.learning.evaluations import Evaluation, Stamp, snapshot
from offline_core.learning.experience import Seconds
from offline_core.learning.metrics import is_report, read_metrics, series
from offline_core.learning.monitor import TrainingMonitor, mean_metrics
from offline_core.learning.prelearner.mapper import ReadSoFar
from offline_core.learning.result import TrainingResult
from offline_core.learning.train import train
from offline_core.policies.manifest import read_policy_manifest
from offline_core.policies.rollouts import Rollouts
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
    def pending(self) -> list[tuple[Stamp, dict[str, np.ndarray]]]:
        return [(e.stamp, e.weights) for e in self._waiting]

    def submit(self, stamp: Stamp) -> None:
        returns = np.array([RETURNS[self._sent]])
        self._waiting.append(Evaluation(stamp, snapshot(self._policy), Rollouts(returns, np.array([1]))))  # type: ignore[arg-type]
        self._sent += 1

    def finished(self, *, wait: bool) -> Iterator[Evaluation]:
        while len(self._waiting) > (0 if wait else self.lag):
            yield self._waiting.pop(0)

    def close(self) -> None: ...


def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lag: int, **evaluation: object) -> tuple[TrainingResult, str]:
    monkeypatch.setattr(trainer, "Evaluations", Behind)
    monkeypatch.setattr(Behind, "lag", lag)
    data = dataset_of(tmp_path / f"data-{lag}", balancing_episodes())
    settings = {"optimizer": {"updates_per_iteration": 5, "batch_size": 100, "max_epochs": 2}}
    result = train(config(evaluation=evaluation, **settings), dataset=data, output=str(tmp_path / f"out-{lag}"))
    return result, read_policy_manifest(result.last_checkpoint).weights_sha256


def test_evaluations_have_an_interval_of_their_own_and_the_last_policy_is_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, _ = trained(tmp_path, monkeypatch, 0, interval_iterations=3)
    assert [updates for updates, _ in result.curve] == [15, 30, 40]
    iterations = [record["updates"] for record in read_metrics(Location.of(str(tmp_path / "out-0"))) if is_report(record)]
    assert iterations == [5, 10, 15, 20, 25, 30, 35, 40]


@pytest.mark.parametrize(
    ("interval", "updates"),
    [(None, [*range(1, 41)]), (3, [3, 5, 6, 9, 10, 12, 15, 18, 20]), (5, [5, 10, 15, 20]), (99, [5, 10, 15, 20])],
)
def test_metrics_are_means_over_so_many_updates_and_end_with_each_iteration(
    tmp_path: Path, interval: int | None, updates: list[int]
) -> None:
    data = dataset_of(tmp_path / "data", balancing_episodes(), environment=None)
    results = {}
    for name, number in (("each", 1), ("some", interval)):
        optimizer = {"updates_per_iteration": 5, "batch_size": 100, "max_epochs": 2, "updates_per_record": number}
        results[name] = train(config(optimizer=optimizer), dataset=data, output=str(tmp_path / name))
    each, some = dict(results["each"].losses), results["some"].losses
    assert list(each) == [*range(1, 41)]
    assert [at for at, _ in some][: len(updates)] == updates and some[-1][0] == 40
    before = 0
    for at, loss in some:
        assert loss == pytest.approx(np.mean([each[update] for update in range(before + 1, at + 1)]))
        before = at
    assert series(Location.of(str(tmp_path / "some")), "loss") == some
    assert results["some"].training_metrics == pytest.approx(results["each"].training_metrics), "of the last iteration"
    assert results["some"].training_metrics["loss"] == pytest.approx(np.mean([each[update] for update in range(36, 41)]))
    policies = [read_policy_manifest(result.last_checkpoint) for result in results.values()]
    assert policies[0].weights_sha256 == policies[1].weights_sha256
    assert policies[0].operation == policies[1].operation, "how often metrics are written is no part of what is made"


def test_records_together_weigh_by_their_updates_and_keep_extremes() -> None:
    records = [(5, {"loss": 1.0, "q_max": 3.0, "q_min": -1.0}), (6, {"loss": 4.0, "q_max": 2.0, "q_min": -2.0, "late": 7.0})]
    assert mean_metrics(records, since=3) == {"loss": 2.0, "q_max": 3.0, "q_min": -2.0, "late": 7.0}


@pytest.mark.parametrize(
    ("evaluation", "updates", "best"),
    [({"patience": 2}, 20, 12.0), ({"target_return": 11.5}, 10, 12.0), ({"target_return": 99.0}, 40, 14.0)],
    ids=["patience", "target", "neither"],
)
def test_how_far_evaluations_are_behind_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, evaluation: dict, updates: int, best: float
) -> None:
    results, last = zip(*(trained(tmp_path, monkeypatch, lag, **evaluation) for lag in (0, 2)), strict=True)
    for result in results:
        assert result.updates == updates
        assert result.metrics["episode_return_mean"] == best
        assert result.curve == results[0].curve
        assert result.losses == results[0].losses
        assert result.training_metrics == results[0].training_metrics, "of the iteration in which the run ended"
    assert len(set(last)) == 1


@pytest.mark.parametrize(("interval", "measured"), [(3, [15, 20]), (9, [20])])
def test_the_held_out_loss_of_the_last_policy_is_measured(tmp_path: Path, interval: int, measured: list[int]) -> None:
    data = dataset_of(tmp_path / "data", balancing_episodes(), environment=None)
    settings = {"optimizer": {"updates_per_iteration": 5, "batch_size": 100, "max_epochs": 1}}
    evaluation = {"held_out": data, "interval_iterations": interval}
    result = train(config(evaluation=evaluation, **settings), dataset=data, output=str(tmp_path / "out"))
    assert [updates for updates, _ in result.held_out_losses] == measured
    assert result.metrics == {"held_out_loss": result.held_out_losses[-1][1]}, "it falls throughout"
    digests = [read_policy_manifest(uri).weights_sha256 for uri in (result.checkpoint, result.last_checkpoint)]
    assert digests[0] == digests[1]
    logged = series(Location.of(str(tmp_path / "out")), "held_out_loss")
    assert logged == result.held_out_losses


def test_rates_are_of_an_iteration_and_not_of_all() -> None:
    log = SimpleNamespace(read=ReadSoFar())
    monitor: Any = SimpleNamespace(experience=log, _read_before=ReadSoFar())
    told = []
    for steps, read, mapped in ((1000, 2.0, 4.0), (1000, 0.5, 1.0), (0, 0.0, 0.0)):
        log.read.steps += steps
        log.read.read_seconds += read
        log.read.prelearner_seconds += mapped
        told.append(TrainingMonitor._rates(monitor, 600, Seconds(update=2.0, gather=1.0, wait=5.0)))
    rates = [[record.get(f"{layer}_steps_per_second") for layer in ("read", "prelearner", "learner")] for record in told]
    assert rates == [[500, 250, 200], [2000, 1000, 200], [None, None, 200]]
