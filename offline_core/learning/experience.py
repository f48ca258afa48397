"""Where a training's batches come from: a log here, play in `play`, or both by share."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from offline_core.data.episodes import columns
from offline_core.learning.algorithms.algorithm import ROWS_AT_A_TIME
from offline_core.learning.config import TrainingConfig
from offline_core.learning.data_loader import DataLoader, check_steps
from offline_core.learning.learner import Batched, Learner
from offline_core.learning.prelearner.mapper import ReadSoFar
from offline_core.learning.steps import NUMBER, BatchSpec, Steps
from offline_core.learning.together import gathered

RECORDS = 300
"""About the number of records of metrics in a training from a log: enough for a curve, and their cost does not show."""


@dataclass(slots=True)
class Seconds:
    """The time of a learner by what it did."""

    wait: float = 0.0
    """Waiting for the next window of steps."""
    gather: float = 0.0
    """Gathering batches out of the window."""
    update: float = 0.0
    """Computing the networks and the optimiser, value targets included."""
    pause: float = 0.0
    """Making reports, checkpoints and the held-out loss."""

    @property
    def all(self) -> float:
        return self.wait + self.gather + self.update + self.pause

    def since(self, other: Seconds) -> Seconds:
        """Return what came after `other`."""
        return Seconds(self.wait - other.wait, self.gather - other.gather, self.update - other.update, self.pause - other.pause)


class Experience:
    """The batches of a training, in their order, and where it goes on after a kill."""

    unit: ClassVar[str]
    """What progress is counted in."""
    repeats: ClassVar[bool]
    """A run that was killed goes on with the same batches; where a policy plays, new episodes begin."""

    def __init__(self, total: int, read: ReadSoFar) -> None:
        self.total = total
        """Progress at the end, about."""
        self.read = read
        """What was read of a log, and how long that took."""
        self.seconds = Seconds()
        """Waiting for windows or playing is added to it here, all else by the trainer."""
        self.updates_per_record: int | None = None
        """Metrics are means over so many updates; None: over an iteration."""
        self.advanced: Callable[[], None] = lambda: None
        """Called when there is progress between batches, for the progress bar."""

    @property
    def counts(self) -> dict[str, int]:
        """What progress is counted by in place of the updates: `env_steps` where a policy plays."""
        return {}

    @property
    def is_over(self) -> bool:
        """There will be no more batches, as far as that is known beforehand."""
        return False

    def begin(self, learner: Learner) -> None:
        """Prepare the networks of a training that does not resume."""

    def batches(self, learner: Learner) -> Iterator[Batched | None]:
        """Yield the next batch to learn from, once the last one was; None where an iteration ends.

        Raises:
            DataError: An epoch of a log has other steps than were counted.
        """
        raise NotImplementedError

    def save(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return where the next batch is, and tensors that it depends on."""
        raise NotImplementedError

    def restore(self, saved: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Go on from what `save` returned."""
        raise NotImplementedError


class Position(NamedTuple):
    """The next batch of a log: of which window of which epoch."""

    epoch: int = 0
    window: int = 0
    batch: int = 0


class Log(Experience):
    """Every step once an epoch, a window at a time, or batches drawn from a replay buffer that a log streams through.

    Arguments:
        total: updates to the last epoch, about.
        max_epochs: passes over the log, at most, where optimizer.max_updates does not count.
    """

    unit = "update"
    repeats = True

    def __init__(self, config: TrainingConfig, loader: DataLoader, *, total: int, max_epochs: int) -> None:
        super().__init__(total, loader.read)
        self._max_epochs = max_epochs
        self._optimizer, self._normalizes = config.optimizer, config.network.normalize_observations
        self._loader, self._next = loader, Position()
        self.updates_per_record = config.optimizer.updates_per_record or max(1, total // RECORDS)

    def save(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        return self._next._asdict(), {}

    def restore(self, saved: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self._next = Position(**saved)

    def begin(self, learner: Learner) -> None:
        """Take the statistics of observations, which normalise them: of all steps of all learners once.

        Of a replay buffer they are of the steps that it holds at some time in the first epoch.
        """
        if not self._normalizes:
            return
        latest, encoder = -1, learner.networks.policy.encoder
        for steps in self._loader.windows(0):
            steps.to(learner.device)
            rows = steps.rows
            if (numbers := steps.columns.get(NUMBER)) is not None:
                rows, latest = rows[numbers[rows] > latest], int(numbers[-1])
            for indices in rows.split(ROWS_AT_A_TIME) if len(rows) else ():
                batch = learner.nested(steps.batch(indices, BatchSpec((columns.OBS,))))
                encoder.update_statistics(batch[columns.OBS])
        if learner.world > 1 and learner.sampler is None:  # all learners hold the whole replay buffer
            own = torch.cat([encoder.count[None], encoder.mean, encoder.variance])
            encoder.count.zero_()
            for statistics in gathered(own):
                if count := statistics[0]:
                    mean, variance = statistics[1:].chunk(2)
                    encoder.merge_statistics(count, mean, variance)

    def batches(self, learner: Learner) -> Iterator[Batched | None]:
        start, loader = self._next, self._loader
        interval, updates = self._optimizer.updates_per_iteration, self._optimizer.max_updates
        epochs = itertools.count(start.epoch) if updates else range(start.epoch, self._max_epochs)
        reported = learner.updates
        if updates and reported >= updates:
            return
        for epoch in epochs:
            steps_so_far, is_whole = 0, epoch != start.epoch or not start.window
            for window, steps in self._windows(learner, epoch, start.window if epoch == start.epoch else 0):
                learner.load(steps)
                steps_so_far += steps.all_steps
                if loader.resident:
                    check_steps(steps_so_far, loader.expected_steps, loader.where)
                first = start.batch if (epoch, window) == start[:2] else 0
                for number, batch in learner.batches(epoch, window, first):
                    yield batch
                    self._next = Position(epoch, window, number + 1)
                    is_last = learner.updates == updates
                    if is_last or (interval and learner.updates % interval == 0):
                        reported = learner.updates
                        yield None
                    if is_last:
                        return
            if is_whole:
                check_steps(steps_so_far, loader.expected_steps, loader.where)
            if not interval:
                reported, self._next = learner.updates, Position(epoch + 1)
                yield None
        if learner.updates != reported:
            self._next = Position(self._max_epochs)
            yield None

    def _windows(self, learner: Learner, epoch: int, first: int) -> Iterator[tuple[int, Steps]]:
        windows = enumerate(self._loader.windows(epoch, first), start=first)
        while True:
            begin = time.perf_counter()
            learner.wait()  # drawing the next batches would
            self.seconds.update += time.perf_counter() - begin
            begin = time.perf_counter()
            window = next(windows, None)
            self.seconds.wait += time.perf_counter() - begin
            if window is None:
                return
            yield window
