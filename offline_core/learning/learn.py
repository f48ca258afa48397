"""Learn as one of the learners of a run: from its last state, to its end, to its result."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from dataclasses import replace
from typing import Any

import torch

from offline_core.data.episodes import columns
from offline_core.data.store.location import Location
from offline_core.learning.costs import Costs, Seconds, bottleneck
from offline_core.learning.data_loader import DataLoader
from offline_core.learning.evaluations import Evaluations
from offline_core.learning.learner import Learner
from offline_core.learning.loop import OtherLearnerError, TrainingLoop
from offline_core.learning.metrics import MetricsLog
from offline_core.learning.monitor import TrainingMonitor, resubmit
from offline_core.learning.networks import save_networks
from offline_core.learning.observed import take_statistics
from offline_core.learning.planning import costs_of
from offline_core.learning.q_values import q_warnings, recorded_returns
from offline_core.learning.result import TrainingResult
from offline_core.learning.run import Run
from offline_core.learning.state import Position, States, TrainingState
from offline_core.policies.initial import begin_as
from offline_core.policies.series import series_of
from offline_core.runtime.seeding import derive_seed
from offline_core.runtime.torch_settings import isolated_torch

log = logging.getLogger(__name__)


def learn(
    run: Run, loader: DataLoader, held_out: DataLoader | None, *, start: float, rank: int = 0, world: int = 1
) -> TrainingResult | None:
    """Train as learner `rank` of `world`, from the last state of the run if it has one; the first learner returns the result.

    Arguments:
        start: `time.time()` when the run began.
    """
    learner = Learner(run.algorithm(), run.config, total_steps=run.total_steps, rank=rank, world=world)
    folder = Location.of(run.output)
    states = States(folder, TrainingState, run=run.identity)
    found = first_state(states, learner)
    seconds = Seconds()
    with contextlib.ExitStack() as stack:
        stack.enter_context(isolated_torch(run.config.compute.threads))
        monitor = None
        if rank == 0:
            policy = learner.algorithm.policy
            metrics = stack.enter_context(MetricsLog(folder, after=None if found is None else found[0]))
            evaluations = None
            if run.played_in is not None:
                seed = derive_seed(run.config.seed, "evaluation")
                evaluations = Evaluations(policy, run.played_in, run.config.evaluation, seed=seed)
                stack.callback(evaluations.close)
            held_out_loss = None if held_out is None else lambda: learner.loss_on(next(held_out.windows(0)))
            state = None if found is None else found[0]
            monitor = TrainingMonitor(run, learner, evaluations, held_out_loss, states, metrics, loader, seconds, state)
            stack.push(lambda kind, *_, monitor=monitor: monitor.close(failed=kind is not None))
        position = Position()
        if found is not None:
            state, tensors = found
            position = Position(*state.position)
            learner.restore(tensors, updates=state.updates, steps=state.steps, within_window=position.batch > 0)
            if monitor is not None and monitor.evaluations is not None:
                resubmit(monitor.evaluations, state, tensors)
            log.info("Resuming %s after update %s", run.output, f"{state.updates:,}")
        elif (initial := run.initial_policy(learner.algorithm.policy)) is not None:
            begin_as(learner.algorithm.policy, initial)  # with its observation filter
            if monitor is not None:
                monitor.measure_first()
        elif run.config.network.normalize_observations:
            take_statistics(learner, loader)
        loaded = time.time()
        begun = learner.steps
        TrainingLoop(run.config, learner, loader, monitor, seconds=seconds, start=position).run()
        if monitor is None:
            return None
        monitor.finish()
        return _result(run, monitor, seconds, loader, start=start, loaded=loaded, steps=learner.steps - begun)


def first_state(states: States[TrainingState], learner: Learner) -> tuple[TrainingState, dict[str, torch.Tensor]] | None:
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


def _result(
    run: Run, monitor: TrainingMonitor, seconds: Seconds, loader: DataLoader, *, start: float, loaded: float, steps: int
) -> TrainingResult:
    checkpoints = monitor.checkpoints
    weights, metrics, updates = monitor.last_weights, monitor.last_metrics, monitor.updates
    last = checkpoints.save("last", weights, metrics, updates=updates)
    best = monitor.best
    best_uri = checkpoints.folder.child("best").uri if best else checkpoints.save("best", weights, {}, updates=updates)
    took = seconds.wait + seconds.gather + seconds.update
    result: dict[str, Any] = {
        "checkpoint": best_uri,
        "last_checkpoint": last,
        "kept": series_of(checkpoints.folder),
        "networks_sha256": save_networks(monitor.learner.algorithm, checkpoints.folder),
        "dataset": run.dataset,
        "algorithm": str(run.config.algorithm),
        "updates": monitor.updates,
        "steps": monitor.steps,
        "epochs": monitor.steps / run.epoch_steps,
        "metrics": best[1] if best else {},
        "target_return": run.target_return,
        "reached_target": monitor.reached_target,
        "curve": monitor.curve,
        "losses": monitor.losses,
        "training_metrics": monitor.training_metrics,
        **_beside_returns(monitor),
        "held_out_losses": monitor.held_out,
        "seconds": time.time() - start,
        "load_seconds": loaded - start,
        "update_seconds": seconds.update,
        "gather_seconds": seconds.gather,
        "data_wait_seconds": seconds.wait,
        "steps_per_second": steps / took if took else 0.0,
        "bottleneck": bottleneck(
            run.config, seconds, loader, loading=loaded - start, steps=steps, costs=_costs(run, seconds, loader, steps)
        ),
    }
    return TrainingResult(**result)


def _beside_returns(monitor: TrainingMonitor) -> dict[str, Any]:
    """Return how Q compares with the returns of the steps that were loaded last; nothing if no Q is learned."""
    q, steps = monitor.training_metrics.get("q"), monitor.learner.loaded_steps
    gamma = getattr(monitor.learner.algorithm.config, "gamma", None)
    if q is None or gamma is None or steps is None or not {columns.REWARDS, columns.TERMINATEDS} <= steps.columns.keys():
        return {}
    recorded = recorded_returns(steps, gamma)
    return {} if recorded is None else {"recorded_return": recorded.mean, "warnings": q_warnings(q, recorded)}


def _costs(run: Run, seconds: Seconds, loader: DataLoader, steps: int) -> Costs | None:
    """Return costs for the epochs that were run; None if too little was measured."""
    epochs = max(1, math.ceil(steps / run.epoch_steps))
    if run.costs is not None:
        return replace(run.costs, epochs=epochs)
    if not loader.read.steps or not steps:
        return None
    costs = costs_of(
        run,
        read_seconds_per_step=loader.read.seconds / loader.read.steps,
        update_seconds=seconds.update / max(1, steps / run.config.optimizer.batch_size),
        parameter_bytes=0,
        ray_is_up=False,
    )
    return replace(costs, epochs=epochs)
