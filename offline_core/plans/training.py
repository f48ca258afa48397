"""Plan of a training: a little is read, and a copy of the networks updated a few times."""

from __future__ import annotations

import contextlib
import math

from offline_core.learning.config import TrainingConfig
from offline_core.learning.costs import choices, measured, ray_resources
from offline_core.learning.run import Run
from offline_core.learning.source import resident_bytes
from offline_core.learning.train import found_result
from offline_core.learning.work import make_run
from offline_core.plans.plan import Amount, Plan, peak_bytes
from offline_core.runtime.ray_session import ray_session


def plan_training(config: TrainingConfig, *, dataset: str, output: str, version: int | None = None) -> Plan:
    """Plan `train`, to its last epoch and without evaluations; it may reach its target return long before.

    Raises:
        ConfigError: the algorithm cannot learn from this.
        DataError: the dataset cannot be read.
    """
    with contextlib.ExitStack() as stack:
        if config.data.reads_by_ray:
            stack.enter_context(ray_session())
        run = make_run(config, dataset, output, version)
        for read in run.read:
            stack.enter_context(read.reading())
        costs = measured(run)
    choice = costs.best(choices(config, ray_resources()))
    held = _held_steps(run)
    done = found_result(run)
    policy_bytes = 2 * costs.parameter_bytes  # best and last
    return Plan(
        reads=[Amount.of(source.origin.ref) for source in run.read],
        writes=[Amount(uri=output, bytes=policy_bytes)],
        seconds=costs.seconds(choice),
        memory_bytes=peak_bytes() + resident_bytes(run.source, held),
        measured=[
            f"reading {1 / max(costs.read_seconds_per_step, 1e-12):,.0f} steps/s, an update of {costs.batch_steps:,} steps in "
            f"{1e3 * costs.update_seconds:.2f} ms, each in one process",
            f"{math.ceil(costs.updates):,} updates in {costs.epochs:,} epochs, by "
            f"{choice.prelearners} prelearners and {choice.learners} learners; without evaluations, and without an earlier "
            "end at the target return",
            f"the data {'is streamed' if run.streamed else 'stays in memory'}",
        ],
        reused=None if done is None else done.checkpoint,
    )


def _held_steps(run: Run) -> int:
    """Return the steps that are in memory at once; a buffer is copied as it is drawn from."""
    if (buffer := run.config.data.buffer) is not None:
        return 2 * buffer.capacity_steps
    return run.config.data.window_steps if run.streamed else run.steps
