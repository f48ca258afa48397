"""Plan of a sweep: each setting is checked against the data, and the first few are measured as trainings."""

from __future__ import annotations

import contextlib
import math

from offline_core.judging.sweeps.config import SweepConfig
from offline_core.judging.sweeps.runs import asked_runs, check_runs, planned_runs
from offline_core.judging.sweeps.scheduling import parallel_runs
from offline_core.judging.sweeps.scoring import scoring_of
from offline_core.judging.sweeps.settings import FIRST_SAMPLES, grid_of, settings_of
from offline_core.learning.costs import Processes, measured
from offline_core.learning.source import resident_bytes
from offline_core.plans.plan import Amount, Plan, peak_bytes
from offline_core.runtime.ray_session import ray_session

MEASURED = 5
"""Settings; the others are taken to cost as much on average."""


def plan_sweep(config: SweepConfig, *, dataset: str, output: str, version: int | None = None) -> Plan:
    """Plan a sweep, each run to its last epoch and without evaluations.

    Raises:
        ConfigError: a setting is invalid or does not fit the data, or runs cannot be compared.
        StorageError, DataError: the dataset cannot be opened.
    """
    settings = settings_of(config)
    with contextlib.ExitStack() as stack:
        if any(setting.config.data.reads_by_ray for setting in settings):
            stack.enter_context(ray_session())
        asked = asked_runs(settings, dataset=dataset, output=output, version=version)
        scoring = scoring_of(config, asked, output)
        runs = planned_runs(config, asked)
        check_runs(asked)
        scoring.check(asked)
        checked = [planned.run for planned in asked]
        first = checked[:MEASURED]
        for read in {read.origin.ref.uri: read for run in first for read in run.read}.values():
            stack.enter_context(read.reading())
        costs = [measured(run) for run in first]
    later = len(grid_of(config)) * (config.samples - FIRST_SAMPLES) if config.search != "random" else 0
    later = max(0, later) * len(config.all_seeds)  # of settings that a search has not chosen yet
    waiting = sum(run.done() is None for run in runs) + later
    parallel = parallel_runs(config.parallel, waiting, asked)
    seconds = sum(cost.seconds(Processes(0, 0)) for cost in costs) / len(costs)
    held = max(resident_bytes(run.source, run.config.data.window_steps if run.streamed else run.steps) for run in checked)
    return Plan(
        reads=[Amount.of(source.origin.ref) for source in checked[0].read],
        writes=[Amount(uri=output, bytes=2 * max(cost.parameter_bytes for cost in costs) * (len(runs) + later))],
        seconds=seconds * math.ceil(waiting / parallel),
        memory_bytes=peak_bytes() + held,
        measured=[
            f"{len(settings) + later // len(config.all_seeds):,} settings with {len(config.all_seeds):,} seeds: {waiting:,} of "
            f"{len(runs) + later:,} runs are to be "
            f"trained, {parallel:,} at once",
            f"{seconds:.3g} s a run, on average of {len(first):,} settings; without evaluations, and without an earlier end at "
            "the target return",
            f"runs are compared by {scoring.score}",
        ],
        reused=None if waiting else output,
    )
