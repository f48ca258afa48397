"""The work of a training: checks by its networks before anything is read, then learning, here or with several learners."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable

import torch

from offline_core.data.environments.vector_env import spaces_of
from offline_core.data.episodes import EpisodeBatch, columns
from offline_core.data.importing.ends import lost_terminations
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError
from offline_core.learning.algorithms.algorithm import Algorithm
from offline_core.learning.algorithms.networks import Networks
from offline_core.learning.config import DataConfig, TrainingConfig
from offline_core.learning.costs import planned
from offline_core.learning.learning_from_log import learn_from_log
from offline_core.learning.optimizer import parameter_groups
from offline_core.learning.pool import wants_prelearners
from offline_core.learning.replay_buffer import make_buffer
from offline_core.learning.result import TrainingResult
from offline_core.learning.run import Run, asked_run
from offline_core.learning.source import Recorded, StepSource, log_memory
from offline_core.learning.state import States
from offline_core.runtime.ray_session import ray_session


def train_run(run: Run, begin: Callable[[], None], loaded: EpisodeBatch | None) -> TrainingResult:
    """Return what `train` returns for this run, see there.

    Arguments:
        begin: called when nothing is refused any more; from then on the output is this run's.
        loaded: what `loaded_columns` returned for such a run, if it did.
    """
    compute = run.config.compute
    if compute.gpus_per_learner and not compute.learners and not torch.cuda.is_available():
        raise ConfigError("This process sees no GPU that Torch can use: set compute.gpus_per_learner to 0.")
    networks = run.networks()
    check_run(run, networks)
    check_environment(run, networks)
    begin()
    start = time.time()  # not while waiting for the lock
    if not run.changes_show:
        States(Location.of(run.output), run=run.identity).clear()  # the data may have changed
    if run.source.is_own and run.counted is None:
        run = run.with_counts()
    log_memory(run.source, run.steps, run.config.data)
    with contextlib.ExitStack() as stack:
        for read in run.read:
            stack.enter_context(read.reading())
        if os.environ.get("RAY_ADDRESS") and "auto" in (run.config.data.prelearners, compute.learners):
            stack.enter_context(ray_session())  # `planned` needs its CPUs
        run, costs = planned(run)
        compute = run.config.compute
        if compute.learners or wants_prelearners(run.config.data):
            stack.enter_context(ray_session())
        if compute.learners:
            from offline_core.learning.group import learn_together

            return learn_together(run, costs, start=start)
        result = learn_from_log(run, networks, costs=costs, start=start, loaded=loaded)
        assert result is not None
        return result


def make_run(config: TrainingConfig, dataset: str, output: str, version: int | None) -> Run:
    """Return a run that was looked at, see `asked_run` and `check_run`."""
    run = asked_run(config, dataset, output, version)
    check_run(run, run.networks())
    return run


def check_run(run: Run, networks: Networks) -> None:
    """Check by the networks, before anything is read, that the algorithm can learn from the data.

    Raises:
        ConfigError: It cannot, or the parameters do not fit it.
    """
    parameter_groups(networks, run.config.optimizer)
    run.initial_policy(networks.policy)
    _check_buffer(run, networks.algorithm)
    _check_measured(run, networks.algorithm)
    check_terminations(run.source, networks.algorithm, run.config.data)


def check_environment(run: Run, networks: Networks) -> None:
    """Check that the policy can be played.

    Raises:
        ConfigError: The environment cannot be made, or has other spaces.
    """
    if run.played_in is not None:
        networks.policy.check_spaces(f"environment {run.played_in.id}", spaces_of(run.played_in))


def _check_measured(run: Run, algorithm: Algorithm) -> None:
    """Check that what goes by how good a policy is has a metric.

    Raises:
        ConfigError: It has none.
    """
    config = run.config
    goes_by = {"evaluation.patience": config.evaluation.patience, "keep.best": config.keep and config.keep.best}
    name = next((name for name, value in goes_by.items() if value is not None), None)
    if name is None or run.played_in is not None or (run.held_out and algorithm.loss_compares):
        return
    compares = f"the loss of {type(algorithm).__name__} cannot be compared over time, as that of bc can"
    raise ConfigError(
        f"{name} has nothing to go by: the policy is not played, and "
        f"{compares if run.held_out else 'no data is held out'}. Have it played (evaluation.play, evaluation.environment), "
        f"or set {name} to None."
    )


def _check_buffer(run: Run, algorithm: Algorithm) -> None:
    """Check that the replay buffer can draw for this algorithm.

    Raises:
        ConfigError: It cannot.
    """
    buffer = run.config.data.buffer
    if buffer is None:
        return
    make_buffer(buffer, replacement=run.config.optimizer.replacement)
    if buffer.sampling == "prioritized" and not algorithm.has_errors:
        raise ConfigError(
            f"{type(algorithm).__name__} learns no values, so no step has an error to be drawn by: set data.buffer.sampling to "
            "uniform, or use an algorithm that learns values."
        )


def check_terminations(source: StepSource, algorithm: Algorithm, config: DataConfig) -> None:
    """Check that the data still has the terminations that the algorithm needs.

    Raises:
        ConfigError: It reads terminations, and an import lost all of them.
    """
    if config.allow_lost_terminations or columns.TERMINATEDS not in algorithm.stored or not isinstance(source, Recorded):
        return
    if lost := lost_terminations(source.dataset):
        raise ConfigError(
            f"{type(algorithm).__name__} learns values, and {lost}: every end would be taken for a cut after which it goes on. "
            "Import the source again so that they are kept (last_new_obs: drop keeps them now), use bc, or set "
            "data.allow_lost_terminations."
        )
