"""Runs the trainings of a sweep: one after the other here, or several at once as tasks of Ray, with shared data."""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import psutil

from offline_core.data.datasets.failure import error_text
from offline_core.data.datasets.manifest import digest
from offline_core.data.episodes import EpisodeBatch
from offline_core.errors import ClusterError, ConfigError, OfflineError
from offline_core.judging.sweeps.result import FailedRun
from offline_core.judging.sweeps.runs import PlannedRun
from offline_core.learning.config import TrainingConfig
from offline_core.learning.result import TrainingResult
from offline_core.learning.run import Run
from offline_core.learning.source import resident_bytes
from offline_core.runtime.progress import progress
from offline_core.runtime.provenance import RUN, made_in_run, provenance
from offline_core.runtime.ray_session import fetch, local_cpus, ray_is_up, ray_session

log = logging.getLogger(__name__)

Outcome = TrainingResult | FailedRun

_OF_RUNS = {"rewards", "prelearners", "resident_bytes", "prefetch", "row_groups_per_read"}
"""Parameters of `data` in which runs may differ and still share their columns."""


def run_all(runs: Sequence[PlannedRun], done: Mapping[int, TrainingResult], parallel: int) -> list[Outcome]:
    """Train all runs that are not done, so many at once, and return the outcomes in the order of the runs.

    A run that fails is reported, and the others go on. What ends this process or Ray ends all; the next call goes on.

    Arguments:
        done: results that exist, by the number of the run.
    """
    waiting = [number for number in range(len(runs)) if number not in done]
    outcomes: dict[int, Outcome] = {}
    with progress(len(runs), what="sweep", unit="run") as bar:
        for number, outcome in itertools.chain(
            done.items(),
            _together(runs, waiting, parallel) if parallel > 1 else _in_turn(runs, waiting),
        ):
            outcomes[number] = outcome
            bar.update(1)
            if isinstance(outcome, FailedRun):
                log.error("%s", outcome)
    return [outcomes[number] for number in range(len(runs))]


def parallel_runs(parallel: Literal["auto"] | int, waiting: int, asked: Sequence[PlannedRun]) -> int:
    """Return how many of the waiting runs train at once.

    Arguments:
        asked: a run of each setting.

    Raises:
        ConfigError: Several are to, and they have learners or prelearners of their own.
    """
    runs = [planned.run for planned in asked]
    alone = all(run.config.compute.learners == 0 and run.config.data.prelearners in (0, "auto") for run in runs)
    if parallel != "auto":
        if parallel > 1 and not alone:
            raise ConfigError(
                "Runs with learners or prelearners of their own train one after the other: set parallel to 1, or "
                "training.compute.learners and training.data.prelearners to 0."
            )
        return min(parallel, max(1, waiting))
    if not alone or waiting < 2:
        return 1
    held = max([resident_bytes(run.source, run.steps) for run in runs if not (run.streamed or is_shared(run))], default=1)
    room = max(1, psutil.virtual_memory().available // 3 // held)
    return min(waiting, _cpus() // max(run.config.compute.threads for run in runs), room) or 1


def _cpus() -> int:
    if not ray_is_up():
        return local_cpus()
    import ray

    return int(ray.cluster_resources().get("CPU", 1))


def _in_turn(runs: Sequence[PlannedRun], numbers: Sequence[int]) -> Iterator[tuple[int, Outcome]]:
    shared = SharedColumns((runs[number].run for number in numbers), in_store=False)
    for number in numbers:
        yield number, _outcome(runs[number], shared.take(runs[number].run))


def _together(runs: Sequence[PlannedRun], numbers: Sequence[int], parallel: int) -> Iterator[tuple[int, Outcome]]:
    """Train several runs at once; a task whose worker dies is tried again, and goes on from its last state."""
    import ray

    with ray_session():
        shared = SharedColumns((runs[number].run for number in numbers), in_store=True)
        waiting, pending = [*reversed(numbers)], dict[Any, int]()
        try:
            while waiting or pending:
                while waiting and len(pending) < parallel:
                    number = waiting.pop()
                    pending[_task(runs[number], shared.take(runs[number].run))] = number
                (ready,), _ = ray.wait([*pending], num_returns=1)
                number = pending.pop(ready)
                yield number, _fetched(ready, runs[number])
        finally:
            for reference in pending:
                ray.cancel(reference, force=True)


def _task(run: PlannedRun, loaded: Any) -> Any:
    import ray

    config = _played_in_process(run.run.config)
    compute = config.compute
    task = ray.remote(num_cpus=compute.threads, num_gpus=compute.gpus_per_learner, max_retries=compute.max_failures)(_remote)
    return task.remote(replace(run, run=replace(run.run, config=config)), loaded, provenance().get(RUN))


def _played_in_process(config: TrainingConfig) -> TrainingConfig:
    """The training without an actor that plays, as the CPUs are taken by runs."""
    if config.evaluation.location != "auto":
        return config
    return config.model_copy(update={"evaluation": config.evaluation.model_copy(update={"location": "process"})})


def _fetched(reference: Any, run: PlannedRun) -> Outcome:
    import ray

    try:
        outcome: Outcome = fetch(reference)
    except ray.exceptions.RayTaskError:
        raise
    except ray.exceptions.RayError as error:  # its worker died too often
        return _failed(run, error, may_pass=True)
    return outcome


def _remote(run: PlannedRun, loaded: EpisodeBatch | None, made_in: str | None) -> Outcome:
    with made_in_run(made_in):
        return _outcome(run, loaded)


def _outcome(run: PlannedRun, loaded: EpisodeBatch | None) -> Outcome:
    """Train, or report what fails."""
    try:
        return run.train(loaded)
    except ClusterError:  # no run can go on
        raise
    except OfflineError as error:
        return _failed(run, error, may_pass=error.may_pass)
    except Exception as error:
        log.exception("%s", run.name)
        return _failed(run, error, may_pass=False)


def _failed(run: PlannedRun, error: Exception, *, may_pass: bool) -> FailedRun:
    return FailedRun(setting=run.setting.name, seed=run.seed, error=error_text(error), may_pass=may_pass)


class SharedColumns:
    """The columns of the runs that wait, by what they read; each is read when the first run asks for it, in this process.

    Only what stays in memory and several runs need is shared, and only with our algorithms, which do not write to it.
    Memory: one copy for each set of columns until the last run has asked; in Ray's object store one for all processes of a
    machine.

    Arguments:
        in_store: give references to Ray's object store.
    """

    def __init__(self, waiting: Iterable[Run], *, in_store: bool) -> None:
        self._left = Counter(key for run in waiting if (key := _key(run)))
        self._found: dict[str, Any] = {}
        self._in_store = in_store

    def take(self, run: Run) -> Any:
        """Return the columns of a waiting run, or a reference to them; None: it reads by itself."""
        key = _key(run)
        if key is None or (self._left[key] < 2 and key not in self._found):
            return None
        if key not in self._found:
            self._found[key] = self._read(run)
        self._left[key] -= 1
        return self._found[key] if self._left[key] else self._found.pop(key)

    def _read(self, run: Run) -> Any:
        try:
            from offline_core.learning.data_loader import loaded_columns  # here, for what is reused needs no Torch

            columns = loaded_columns(run)
        except OfflineError:  # each run says so by itself
            return None
        if not self._in_store:
            return columns
        import ray

        return ray.put(columns)


def is_shared(run: Run) -> bool:
    """Whether the data of such a run can be shared."""
    return _key(run) is not None


def _key(run: Run) -> str | None:
    """Identify what a run reads; None: it is not to be shared."""
    learns_alone = run.config.compute.learners == 0 and not run.config.data.prelearners
    if run.streamed or run.source.is_own or not learns_alone or not isinstance(run.config.algorithm, str):
        return None
    algorithm = run.algorithm
    data = run.config.data.model_dump(mode="json", exclude=_OF_RUNS)
    return digest([algorithm.stored, algorithm.batch_columns, algorithm.needs_next_obs, data])
