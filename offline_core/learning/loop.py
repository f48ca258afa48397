"""The training loop: chunk, batch, update; every so often a pause. All learners run it alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch

from offline_core.errors import LearningError
from offline_core.learning.config import TrainingConfig
from offline_core.learning.feed import Feed, batches
from offline_core.learning.learner import Learner
from offline_core.learning.state import Position
from offline_core.learning.steps import Steps


@dataclass(slots=True)
class Seconds:
    """Where the time of a learner went."""

    wait: float = 0.0
    """For the next chunk of steps."""
    gather: float = 0.0
    """Batches out of the chunk."""
    update: float = 0.0
    """Networks and optimiser, value targets included."""
    pause: float = 0.0
    """Reports, checkpoints, held-out loss."""

    @property
    def all(self) -> float:
        return self.wait + self.gather + self.update + self.pause

    def since(self, other: Seconds) -> Seconds:
        return Seconds(self.wait - other.wait, self.gather - other.gather, self.update - other.update, self.pause - other.pause)


class OtherLearnerError(LearningError):
    """Another learner cannot go on; its own error says why."""


class Supervisor(Protocol):
    """Of the first learner: keeps the records, and says when it is enough."""

    ended: bool
    """It is enough: the run has ended at an evaluation that was good enough, or that nothing better followed."""

    def pause(self, position: Position, watched: dict[str, float]) -> bool:
        """After each iteration; True ends the run."""

    def went_wrong(self, watched: dict[str, float], batch: dict[str, torch.Tensor]) -> None:
        """The loss is no number any more; raises, unless the run had been good enough before."""


class TrainingLoop:
    """Runs until the supervisor has had enough or the epochs are over.

    Arguments:
        supervisor: None on all learners but the first.
        start: the batch to begin with.
    """

    def __init__(
        self,
        config: TrainingConfig,
        learner: Learner,
        feed: Feed,
        supervisor: Supervisor | None,
        *,
        seconds: Seconds,
        start: Position = Position(),
    ) -> None:
        self.config = config
        self.learner = learner
        self.feed = feed
        self.supervisor = supervisor
        self.start = start
        self.seconds = seconds

    def run(self) -> None:
        """Trains.

        Raises:
            LearningError: the loss is no number any more, or the first learner stopped.
        """
        interval = self.config.optimizer.updates_per_iteration
        if self._agreed(lambda supervisor: supervisor.ended):
            return None
        paused_at = self.learner.updates
        for epoch in range(self.start.epoch, self.config.optimizer.max_epochs):
            for chunk, steps in self._chunks(epoch):
                self.learner.load(steps)
                for number, units in self._batches(epoch, chunk):
                    begin, gathered = time.perf_counter(), self.learner.gather_seconds
                    finite = self.learner.update(units)
                    gathering = self.learner.gather_seconds - gathered
                    self.seconds.gather += gathering
                    self.seconds.update += time.perf_counter() - begin - gathering
                    if not finite:
                        return self._went_wrong()
                    if interval and self.learner.updates % interval == 0:
                        paused_at = self.learner.updates
                        if self._pause(Position(epoch, chunk, number + 1)):
                            return None
            if not interval:
                paused_at = self.learner.updates
                if self._pause(Position(epoch + 1)):
                    return None
        if self.learner.updates != paused_at:
            self._pause(Position(self.config.optimizer.max_epochs))
        return None

    def _chunks(self, epoch: int) -> Iterator[tuple[int, Steps]]:
        first = self.start.chunk if epoch == self.start.epoch else 0
        chunks = enumerate(self.feed.chunks(epoch, first), start=first)
        while True:
            begin = time.perf_counter()
            found = next(chunks, None)
            self.seconds.wait += time.perf_counter() - begin
            if found is None:
                return
            yield found

    def _batches(self, epoch: int, chunk: int) -> Iterator[tuple[int, torch.Tensor]]:
        units, size = self.learner.units(), self.learner.batch_units
        first = self.start.batch if (epoch, chunk) == self.start[:2] else 0
        if self.learner.drawing is not None:
            return self.learner.drawing.batches(units, size, epoch=epoch, chunk=chunk, first=first)
        replacement = self.config.optimizer.replacement
        order = batches(units, size, seed=self.config.seed, epoch=epoch, chunk=chunk, replacement=replacement)
        return ((number, units) for number, units in enumerate(order) if number >= first)

    def _pause(self, position: Position) -> bool:
        begin = time.perf_counter()
        watched = self.learner.watched()
        stop = self._agreed(lambda supervisor: supervisor.pause(position, watched))
        self.seconds.pause += time.perf_counter() - begin
        return stop

    def _went_wrong(self) -> None:
        watched, batch = self.learner.watched(), self.learner.last_batch()

        def tell(supervisor: Supervisor) -> bool:
            supervisor.went_wrong(watched, batch)
            return True

        self._agreed(tell)

    def _agreed(self, decide: Callable[[Supervisor], bool]) -> bool:
        """What the supervisor decides, on all learners; if it raises, the others stop as well."""
        if self.learner.world == 1:
            return self.supervisor is not None and decide(self.supervisor)
        verdict = torch.zeros(1, dtype=torch.int64, device=self.learner.device)
        try:
            verdict += self.supervisor is not None and decide(self.supervisor)
        except BaseException:
            verdict -= 1
            raise
        finally:
            torch.distributed.broadcast(verdict, src=0)
        if verdict < 0:
            raise OtherLearnerError("The first learner stopped; its own error says why.")
        return bool(verdict)
