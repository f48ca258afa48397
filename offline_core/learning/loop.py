"""The training loop: window, batch, update, and a pause after each iteration. All learners run the same."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator

import torch

from offline_core.errors import LearningError
from offline_core.learning.config import TrainingConfig
from offline_core.learning.costs import Seconds
from offline_core.learning.data_loader import DataLoader, check_steps
from offline_core.learning.learner import Learner
from offline_core.learning.monitor import TrainingMonitor
from offline_core.learning.state import Position
from offline_core.learning.steps import Steps


class OtherLearnerError(LearningError):
    """Another learner stopped; its own error says why."""


class TrainingLoop:
    """Runs until the monitor ends it or the epochs are over.

    Arguments:
        monitor: None on all learners but the first.
        start: the first batch.
    """

    def __init__(
        self,
        config: TrainingConfig,
        learner: Learner,
        loader: DataLoader,
        monitor: TrainingMonitor | None,
        *,
        seconds: Seconds,
        start: Position = Position(),
    ) -> None:
        self.config = config
        self.learner = learner
        self.loader = loader
        self.monitor = monitor
        self.start = start
        self.seconds = seconds

    def run(self) -> None:
        """Train.

        Raises:
            LearningError: The loss is NaN or infinite, or the first learner stopped.
            DataError: An epoch has other steps than were counted.
        """
        interval, updates = self.config.optimizer.updates_per_iteration, self.config.optimizer.max_updates
        epochs = itertools.count(self.start.epoch) if updates else range(self.start.epoch, self.config.optimizer.max_epochs)
        if self._agreed(lambda monitor: monitor.ended):
            return
        paused_at = self.learner.updates
        if updates and paused_at >= updates:
            return
        for epoch in epochs:
            found, is_whole = 0, epoch != self.start.epoch or not self.start.window
            for window, steps in self._windows(epoch):
                self.learner.load(steps)
                found += steps.all_steps
                if self.loader.resident:
                    check_steps(found, self.loader.expected_steps, self.loader.where)
                first = self.start.batch if (epoch, window) == self.start[:2] else 0
                for number, batch in self.learner.batches(epoch, window, first):
                    begin, gathered = time.perf_counter(), self.learner.gather_seconds
                    finite = self.learner.update(batch.indices, batch)
                    gathering = self.learner.gather_seconds - gathered
                    self.seconds.gather += gathering
                    self.seconds.update += time.perf_counter() - begin - gathering
                    if not finite:
                        self._stop()
                        return
                    last = self.learner.updates == updates
                    if last or (interval and self.learner.updates % interval == 0):
                        paused_at = self.learner.updates
                        if self._pause(Position(epoch, window, number + 1)) or last:
                            return
            if is_whole:
                check_steps(found, self.loader.expected_steps, self.loader.where)
            if not interval:
                paused_at = self.learner.updates
                if self._pause(Position(epoch + 1)):
                    return
        if self.learner.updates != paused_at:
            self._pause(Position(self.config.optimizer.max_epochs))

    def _windows(self, epoch: int) -> Iterator[tuple[int, Steps]]:
        first = self.start.window if epoch == self.start.epoch else 0
        windows = enumerate(self.loader.windows(epoch, first), start=first)
        while True:
            begin = time.perf_counter()
            found = next(windows, None)
            self.seconds.wait += time.perf_counter() - begin
            if found is None:
                return
            yield found

    def _pause(self, position: Position) -> bool:
        begin = time.perf_counter()
        metrics = self.learner.take_metrics()
        stop = self._agreed(lambda monitor: monitor.pause(position, metrics))
        self.seconds.pause += time.perf_counter() - begin
        return stop

    def _stop(self) -> None:
        """End all learners after a NaN or infinite loss."""
        metrics, batch = self.learner.take_metrics(), self.learner.last_batch()

        def stop(monitor: TrainingMonitor) -> bool:
            monitor.on_non_finite_loss(metrics, batch)
            return True

        self._agreed(stop)

    def _agreed(self, decide: Callable[[TrainingMonitor], bool]) -> bool:
        """Return what the monitor decides, on all learners; if it raises, the others stop as well."""
        if self.learner.world == 1:
            return self.monitor is not None and decide(self.monitor)
        verdict = torch.zeros(1, dtype=torch.int64, device=self.learner.device)
        try:
            verdict += self.monitor is not None and decide(self.monitor)
        except BaseException:
            verdict -= 1
            raise
        finally:
            torch.distributed.broadcast(verdict, src=0)
        if verdict < 0:
            raise OtherLearnerError("The first learner stopped; its own error says why.")
        return bool(verdict)
