"""Learn as one of the learners of a run: from its last state, to its end, to its result."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from dataclasses import replace
from typing import Any, NamedTuple

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
from offline_core.learning.planning import costs_of
from offline_core.learning.result import TrainingResult
from offline_core.learning.returns import discounted_sums, steps_left
from offline_core.learning.run import Run
from offline_core.learning.state import Position, States, TrainingState
from offline_core.learning.steps import NUMBER, BatchSpec, Steps
from offline_core.learning.together import gathered
from offline_core.policies.initial import begin_as
from offline_core.policies.series import series_of
from offline_core.runtime.seeding import derive_seed
from offline_core.runtime.torch_settings import isolated_torch

log = logging.getLogger(__name__)

NEVER_ENDS = 1e-6
"""Share of the discounted steps that was recorded, below which nothing is known of what follows."""


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
            run.config,
            seconds,
            loader.read,
            resident=loader.resident,
            loading=loaded - start,
            steps=steps,
            costs=_costs(run, seconds, loader, steps),
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


def take_statistics(learner: Learner, loader: DataLoader) -> None:
    """Take the statistics of observations, which normalise them: of all steps of all learners once.

    Of a replay buffer they are of the steps that it holds at some time in the first epoch.
    """
    seen, encoder = -1, learner.algorithm.policy.encoder
    for steps in loader.windows(0):
        steps.to(learner.device)
        rows = steps.rows
        if (numbers := steps.columns.get(NUMBER)) is not None:
            rows, seen = rows[numbers[rows] > seen], int(numbers[-1])
        for indices in rows.split(65_536) if len(rows) else ():
            batch = learner.nested(steps.batch(indices, BatchSpec((columns.OBS,))))
            encoder.update_statistics(batch[columns.OBS])
    if learner.world > 1 and learner.drawing is None:  # all learners hold the whole replay buffer
        own = torch.cat([encoder.count[None], encoder.mean, encoder.variance])
        encoder.count.zero_()
        for found in gathered(own):
            if count := found[0]:
                mean, variance = found[1:].chunk(2)
                encoder.merge_statistics(count, mean, variance)


class RecordedReturns(NamedTuple):
    """Discounted rewards from recorded steps on, as the critics learn them: with scaled rewards."""

    mean: float
    deviation: float
    highest: float


def recorded_returns(steps: Steps, gamma: float) -> RecordedReturns | None:
    """Return the returns from each step on; None: there are no steps, or all that counts lies after their recordings.

    An episode that did not terminate goes on with the mean of all steps, which solves mean = recorded + discounts · mean.
    """
    if not len(steps):
        return None
    left = steps_left(steps)
    is_open = ~steps.columns[columns.TERMINATEDS][steps.last_step[steps.episode]]
    recorded = discounted_sums(steps.columns[columns.REWARDS], left, gamma)[steps.rows]
    beyond = (gamma ** left.double() * is_open)[steps.rows]
    share = 1 - float(beyond.mean())
    if share < NEVER_ENDS:
        return None
    mean = float(recorded.mean()) / share
    returns = recorded + beyond * mean
    return RecordedReturns(mean, float(returns.std(correction=0)), float(returns.max()))


def q_warnings(q: float, recorded: RecordedReturns) -> list[str]:
    """Return what speaks against critics that give the recorded actions a Q of `q` on average.

    A policy that is learned is to be better than what was recorded, so a Q above the mean is no fault, and one far below it is.
    """
    told = f"Q of the recorded actions is {q:.4g} on average, and what followed them came to {recorded.mean:.4g}"
    if recorded.mean - q > max(abs(recorded.mean) / 2, recorded.deviation):
        return [
            f"{told}: the critics have not learned how much the returns are, so the policy goes by values that mean little. "
            "Train longer (optimizer.max_epochs), or set data.rewards.scale to return_range."
        ]
    if q > recorded.highest:
        return [
            f"{told}, {recorded.highest:.4g} at most: the critics promise more than any recorded step shows. Play or estimate "
            "the policy before you believe it, or use an algorithm that stays nearer to the data (iql, cql)."
        ]
    return []
