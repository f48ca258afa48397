"""Learn from a log as one of the learners of a run: from its last state, to its end, to its result."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import Any

from offline_core.data.datasets.dataset_card import reading
from offline_core.data.datasets.held_out import held_out_beside
from offline_core.data.episodes import EpisodeBatch, columns
from offline_core.data.store.location import Location
from offline_core.learning.algorithms.networks import Networks
from offline_core.learning.checkpoints import LAST, save_networks
from offline_core.learning.costs import Costs, bottleneck, costs_of
from offline_core.learning.data_loader import DataLoader, held_out_loader_of, loader_of
from offline_core.learning.experience import Log, Seconds
from offline_core.learning.learned_actions import warnings_of_actions
from offline_core.learning.learner import Learner
from offline_core.learning.monitor import TrainingGoal, TrainingMonitor
from offline_core.learning.result import TrainingResult
from offline_core.learning.returns import q_warnings, recorded_returns
from offline_core.learning.run import Run
from offline_core.learning.trainer import learn
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.initial import begin_as
from offline_core.policies.series import series_of
from offline_core.runtime.reporting.card import command
from offline_core.runtime.torch_settings import isolated_torch


def learn_from_log(
    run: Run,
    networks: Networks,
    *,
    costs: Costs | None,
    start: float,
    rank: int = 0,
    world: int = 1,
    loaded: EpisodeBatch | None = None,
) -> TrainingResult | None:
    """Train as learner `rank` of `world`, from the last state of the run if it has one; the first learner returns the result.

    Arguments:
        networks: of the run, new; updated in place.
        costs: as measured before the start; None: one process reads and learns, and measures them itself.
        start: `time.time()` when the run began.
        loaded: what `loaded_columns` returned for such a run, if it did.
    """
    loader = loader_of(run, rank=rank, world=world, loaded=loaded)
    held_out = held_out_loader_of(run) if rank == 0 else None
    learner = Learner(networks, run.config, total_steps=run.total_steps, rank=rank, world=world)
    policy = networks.policy
    policy.input_columns = run.source.input_columns

    def begins_as() -> None:
        initial = run.initial_policy(policy)
        assert initial is not None
        begin_as(policy, initial)  # with its observation filter
        policy.input_columns = run.source.input_columns

    with isolated_torch(run.config.compute.threads):
        monitor = learn(
            learner,
            Log(run.config, loader, total=run.total_updates, max_epochs=run.max_epochs),
            goal_of(run),
            held_out_loss=None if held_out is None else lambda: learner.loss_on(next(held_out.windows(0))),
            begins_as=None if run.initial is None else begins_as,
        )
    loader.close()
    return None if monitor is None else _result(run, monitor, loader, costs, start=start)


def goal_of(run: Run) -> TrainingGoal:
    """Return where a run goes, and what it is measured by."""
    return TrainingGoal(
        Location.of(run.output),
        run.operation,
        run.parents,
        environment=run.environment,
        played_in=run.played_in,
        evaluation=run.config.evaluation,
        target_return=run.target_return,
        seed=run.config.seed,
        keep=run.config.keep,
    )


def _result(run: Run, monitor: TrainingMonitor, loader: DataLoader, costs: Costs | None, *, start: float) -> TrainingResult:
    checkpoints, seconds, loading = monitor.checkpoints, monitor.experience.seconds, monitor.began_at - start
    steps = monitor.learner.steps - monitor.began_with_steps
    last = checkpoints.save(LAST, monitor.last_weights, monitor.last_metrics, updates=monitor.updates)
    took = seconds.wait + seconds.gather + seconds.update
    learned = monitor.learned()
    about_actions = _beside_actions(run, monitor, learned["checkpoint"])
    recorded_return, about_q = _beside_returns(run, monitor)
    result: dict[str, Any] = learned | {
        "last_checkpoint": last,
        "kept": series_of(checkpoints.folder),
        "networks_sha256": save_networks(monitor.learner.networks, checkpoints.folder),
        "dataset": run.dataset,
        "held_out": held_out_beside(run.dataset),
        "algorithm": str(run.config.algorithm),
        "steps": monitor.steps,
        "epochs": monitor.steps / run.epoch_steps,
        "losses": monitor.losses,
        "training_metrics": monitor.training_metrics,
        "recorded_return": recorded_return,
        "acts_alike": bool(about_actions),
        "warnings": [*about_actions, *about_q],
        "held_out_losses": monitor.held_out,
        "seconds": time.time() - start,
        "load_seconds": loading,
        "update_seconds": seconds.update,
        "gather_seconds": seconds.gather,
        "data_wait_seconds": seconds.wait,
        "steps_per_second": steps / took if took else 0.0,
        "bottleneck": bottleneck(
            run.config,
            seconds,
            loader.read,
            resident=loader.resident,
            loading=loading,
            steps=steps,
            costs=_costs(run, costs, seconds, loader, steps),
        ),
    }
    return TrainingResult(**result)


def _beside_actions(run: Run, monitor: TrainingMonitor, checkpoint: str) -> list[str]:
    """Return how the best policy acts beside what was recorded; nothing if it was played, which says more."""
    steps = monitor.learner.loaded_steps
    if run.played_in is not None or steps is None:
        return []
    told = warnings_of_actions(load_policy(checkpoint, allow_code=True), steps, monitor.learner.spec)
    if not run.dataset.version:  # user code made the steps, which 'offline outliers' does not read
        return told
    proposed = command("offline", "outliers", *reading(run.dataset))
    return [f"{sentence} '{proposed}' proposes parameters." for sentence in told]


def _beside_returns(run: Run, monitor: TrainingMonitor) -> tuple[float | None, list[str]]:
    """Return what Q is to be compared with, of the steps that were loaded last, and what speaks against it.

    It is None, and nothing is said, if no Q is learned.
    """
    q, steps = monitor.training_metrics.get("q"), monitor.learner.loaded_steps
    gamma = getattr(monitor.learner.algorithm, "gamma", None)
    if q is None or gamma is None or steps is None or not {columns.REWARDS, columns.TERMINATEDS} <= steps.columns.keys():
        return None, []
    recorded = recorded_returns(steps, gamma)
    if recorded is None:
        return None, []
    config = run.config
    return recorded.mean, q_warnings(q, recorded, scale=config.data.rewards.scale, algorithm=str(config.algorithm))


def _costs(run: Run, costs: Costs | None, seconds: Seconds, loader: DataLoader, steps: int) -> Costs | None:
    """Return costs for the epochs that were run; None if too little was measured."""
    epochs = max(1, math.ceil(steps / run.epoch_steps))
    if costs is None and loader.read.steps and steps:
        costs = costs_of(
            run,
            read_seconds_per_step=loader.read.seconds / loader.read.steps,
            update_seconds=seconds.update / max(1, steps / run.config.optimizer.batch_size),
            parameter_bytes=0,
            ray_is_up=False,
        )
    return None if costs is None else replace(costs, epochs=epochs)
