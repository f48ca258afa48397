"""The training loop: batch, update, now and then a look at how the policy plays."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from torch import Tensor
from tqdm import tqdm

from offline_core.errors import LearningError
from offline_core.learning.config import TrainingConfig
from offline_core.learning.evaluations import Evaluation, Evaluations, Weights, snapshot
from offline_core.learning.feed import Feed, FlatBatch
from offline_core.learning.learner import Learner
from offline_core.learning.metrics import MetricsLog


class Report(NamedTuple):
    """Where the training stood."""

    updates: int
    steps: int
    loss: float
    """Mean since the report before."""


class TrainingLoop:
    """Runs until the target is reached or the epochs are over.

    Evaluations play beside the training, so the loop is a little ahead of them. What comes of the run does not depend on
    by how much: the best policy is the first that reached the target (else the best of all), and the run counts as having
    ended there.
    """

    def __init__(
        self,
        config: TrainingConfig,
        learner: Learner,
        evaluations: Evaluations | None,
        metrics: MetricsLog,
        target_return: float | None,
        *,
        on_best: Callable[[Evaluation], None],
    ) -> None:
        self.config = config
        self.learner = learner
        self.evaluations = evaluations
        self.metrics = metrics
        self.target_return = target_return
        self.on_best = on_best
        self.best: Evaluation | None = None
        self.reached_target = False
        self.last_weights: Weights = {}
        self.last_metrics: dict[str, float] = {}
        self.curve: list[tuple[int, float]] = []
        self.reports: list[Report] = []
        self.updates = self.steps = 0  # of the work done, which may go a little beyond the end of the run
        self.update_seconds = self.data_wait_seconds = 0.0
        self._reported_seconds = (0.0, 0.0)

    def run(self, feed: Feed) -> None:
        """Trains; afterwards `best`, `last_weights` and `reports` say what came of it, the last report where it ended.

        Raises:
            LearningError: the loss is no number any more.
        """
        optimizer, interval = self.config.optimizer, self.config.evaluation.interval_updates
        total = None if feed.steps is None else optimizer.max_epochs * math.ceil(feed.steps / optimizer.batch_size)
        with tqdm(total=total, desc="train", unit="update", disable=None) as bar:
            window = _Window()
            for batch in self._timed(feed):
                begin = time.perf_counter()
                window.add(self.learner.update(batch), len(next(iter(batch.values()))))
                self.update_seconds += time.perf_counter() - begin
                self.updates += 1
                bar.update()
                if self.updates % interval == 0:
                    if self._pause(window, bar):
                        return
                    window = _Window()
            if window.updates and self._pause(window, bar):
                return
            self.last_weights = snapshot(self.learner.policy)
            self._collect(bar, wait=True)

    def _timed(self, feed: Feed) -> Iterator[FlatBatch]:
        for epoch in range(self.config.optimizer.max_epochs):
            batches = feed.batches(epoch)
            while True:
                begin = time.perf_counter()
                batch = next(batches, None)
                self.data_wait_seconds += time.perf_counter() - begin
                if batch is None:
                    break
                yield batch

    def _pause(self, window: _Window, bar: tqdm) -> bool:
        """Reports on the updates since the last pause and sends the policy off to play; True if the run is over."""
        means = window.means()
        if wrong := [name for name, value in means.items() if not math.isfinite(value)]:
            if self._collect(bar, wait=True):
                return True  # it was good enough before it went wrong
            raise LearningError(
                f"After {self.updates} updates {', '.join(wrong)} is no number any more. Lower the learning rate, or set a "
                "gradient norm to clip to."
            )
        self._report(window, means)
        self._submit()
        return self._collect(bar, wait=False)

    def _report(self, window: _Window, means: dict[str, float]) -> None:
        self.steps += window.steps
        self.reports.append(Report(self.updates, self.steps, means["loss"]))
        update_seconds = self.update_seconds - self._reported_seconds[0]
        data_wait_seconds = self.data_wait_seconds - self._reported_seconds[1]
        self._reported_seconds = (self.update_seconds, self.data_wait_seconds)
        self.metrics.add(
            self.updates,
            means
            | {
                "steps": self.steps,
                "update_seconds": update_seconds,
                "data_wait_seconds": data_wait_seconds,
                "steps_per_second": window.steps / (update_seconds + data_wait_seconds),
            },
        )

    def _submit(self) -> None:
        if self.evaluations is not None:
            self.evaluations.submit(self.updates)

    def _collect(self, bar: tqdm, *, wait: bool) -> bool:
        """Takes in what has been evaluated; True if that ends the run."""
        for evaluation in self.evaluations.finished(wait=wait) if self.evaluations is not None else ():
            mean = evaluation.rollouts.metrics["episode_return_mean"]
            self.curve.append((evaluation.updates, mean))
            self.metrics.add(evaluation.updates, {"episode_return_mean": mean})
            bar.set_postfix({"return": f"{mean:.1f}"})
            if self.best is None or mean > self.best.rollouts.metrics["episode_return_mean"]:
                self.best = evaluation
                self.on_best(evaluation)
            self.last_weights, self.last_metrics = evaluation.weights, evaluation.rollouts.metrics
            if self.target_return is not None and mean >= self.target_return:
                self.reached_target = True
                self.reports = [report for report in self.reports if report.updates <= evaluation.updates]
                return True
        return False


class _Window:
    """Sums of the metrics since the last report, added up as tensors so that nothing waits for a number."""

    def __init__(self) -> None:
        self.updates = self.steps = 0
        self._sums: dict[str, Tensor] = {}

    def add(self, metrics: dict[str, Tensor], steps: int) -> None:
        self.updates += 1
        self.steps += steps
        for name, value in metrics.items():
            self._sums[name] = self._sums[name] + value if name in self._sums else value

    def means(self) -> dict[str, float]:
        return {name: float(total) / self.updates for name, total in self._sums.items()}
