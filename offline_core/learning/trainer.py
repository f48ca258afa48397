"""The trainer: batch, update, and a pause after each iteration, from a log, from play, or from both."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from offline_core.errors import LearningError
from offline_core.learning.evaluations import Evaluations
from offline_core.learning.experience import Experience, Seconds
from offline_core.learning.learner import Batched, Learner
from offline_core.learning.metrics import MetricsLog
from offline_core.learning.monitor import TrainingGoal, TrainingMonitor
from offline_core.learning.state import States, TrainingState
from offline_core.runtime.seeding import derive_seed

log = logging.getLogger(__name__)

UPDATES_BETWEEN_LOOKS = 32
"""After which the progress bar moves."""


class OtherLearnerError(LearningError):
    """Another learner stopped; its own error says why."""


def learn(
    learner: Learner,
    experience: Experience,
    goal: TrainingGoal,
    *,
    held_out_loss: Callable[[], float] | None = None,
    begins_as: Callable[[], None] | None = None,
) -> TrainingMonitor | None:
    """Train from the last state of the run, if it has one, to its end; return the monitor of the first learner.

    Arguments:
        held_out_loss: of the present policy; None if no data is held out.
        begins_as: gives the networks the weights of an initial policy, which is measured first; None: they begin as they are.

    Raises:
        LearningError: The loss is NaN or infinite, or the first learner stopped.
        DataError: An epoch of a log has other steps than were counted.
        StorageError: The folder cannot be written.
    """
    states = States(goal.folder, run=goal.identity)
    last_state = first_state(states, learner)
    if last_state is not None:
        state, tensors = last_state
        experience.restore(state.experience, tensors)
        is_within_window = bool(state.experience.get("batch"))
        learner.restore(tensors, updates=state.updates, steps=state.steps, within_window=is_within_window)
        log.info("Resuming %s after %s %ss", goal.folder.uri, f"{state.progress:,}", experience.unit)
    elif begins_as is not None:
        begins_as()
    else:
        experience.begin(learner)
    with contextlib.ExitStack() as stack:
        monitor = None
        if learner.rank == 0:
            metrics = stack.enter_context(MetricsLog(goal.folder, after=None if last_state is None else last_state[0]))
            evaluations = None
            if goal.played_in is not None:
                seed = derive_seed(goal.seed, "evaluation")
                evaluations = Evaluations(learner.networks.policy, goal.played_in, goal.evaluation, seed=seed)
                stack.callback(evaluations.close)
            monitor = TrainingMonitor(goal, learner, experience, evaluations, held_out_loss, states, metrics, last_state)
            stack.enter_context(monitor.bar)
            if last_state is None and begins_as is not None:
                monitor.measure_first()
            monitor.begin()
            experience.advanced = monitor.advance
        _run(learner, experience, monitor)
        if monitor is not None:
            monitor.finish()
        return monitor


def _run(learner: Learner, experience: Experience, monitor: TrainingMonitor | None) -> None:
    """Learn until the monitor ends the run or there are no more batches."""
    if _agreed(learner, monitor, lambda monitor: monitor.ended):
        return
    seconds = experience.seconds
    for batch in experience.batches(learner):
        if batch is None:
            begin = time.perf_counter()
            learner.wait()
            seconds.update += time.perf_counter() - begin
            begin = time.perf_counter()
            ends = _agreed(learner, monitor, partial(TrainingMonitor.pause, records=learner.take_records()))
            seconds.pause += time.perf_counter() - begin
            if ends:
                return
        elif not _updated(learner, batch, seconds):
            _agreed(learner, monitor, partial(TrainingMonitor.on_non_finite_loss, metrics=learner.take_metrics()))
            return
        else:
            if experience.updates_per_record and learner.updates % experience.updates_per_record == 0:
                learner.note_metrics()
            if monitor is not None and learner.updates % UPDATES_BETWEEN_LOOKS == 0:
                monitor.advance()


def _updated(learner: Learner, batch: Batched, seconds: Seconds) -> bool:
    begin, gathered = time.perf_counter(), learner.gather_seconds
    is_finite = learner.update(batch.indices, batch)
    gathering = learner.gather_seconds - gathered
    seconds.gather += gathering
    seconds.update += time.perf_counter() - begin - gathering
    return is_finite


def _agreed(learner: Learner, monitor: TrainingMonitor | None, decide: Callable[[TrainingMonitor], bool]) -> bool:
    """Return what the monitor decides, on all learners; if it raises, the others stop as well."""
    if learner.world == 1:
        return monitor is not None and decide(monitor)
    verdict = torch.zeros(1, dtype=torch.int64, device=learner.device)
    try:
        verdict += monitor is not None and decide(monitor)
    except BaseException:
        verdict -= 1
        raise
    finally:
        torch.distributed.broadcast(verdict, src=0)
    if verdict < 0:
        raise OtherLearnerError("The first learner stopped; its own error says why.")
    return bool(verdict)


def first_state(states: States, learner: Learner) -> tuple[TrainingState, dict[str, torch.Tensor]] | None:
    """Return the state to resume from. The first learner reads it for all: others might find another one.

    Raises:
        StorageError: It cannot be read; the other learners stop as well.
    """
    if learner.world == 1:
        return states.latest()
    shared: list[Any] = [OtherLearnerError("The first learner stopped; its own error says why.")]
    try:
        if learner.rank == 0:
            shared = [states.latest()]
    finally:
        torch.distributed.broadcast_object_list(shared, src=0, device=learner.device)
    if isinstance(shared[0], OtherLearnerError):
        raise shared[0]
    return shared[0]  # type: ignore[no-any-return]
