"""Trains a policy from a dataset: data loader → learners, with evaluations beside, until it reaches its target."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import time
from dataclasses import replace

import torch

from offline_core.data.datasets.dataset import open_committed
from offline_core.data.datasets.result_cache import StoredResult
from offline_core.data.environments.vector_env import reward_threshold, spaces_of
from offline_core.data.episodes import EpisodeBatch, columns
from offline_core.data.importing.ends import lost_terminations
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError
from offline_core.learning.algorithms.algorithm import Algorithm
from offline_core.learning.config import DataConfig, TrainingConfig
from offline_core.learning.learn import learn
from offline_core.learning.mapping import wants_prelearners
from offline_core.learning.optimizer import parameter_groups
from offline_core.learning.planning import planned
from offline_core.learning.raw_rows import RawRows
from offline_core.learning.recorded import Recorded
from offline_core.learning.replay.buffer import make_buffer
from offline_core.learning.result import TrainingResult
from offline_core.learning.run import Run, held_out_loader_of, loader_of
from offline_core.learning.source import Source, count, is_streamed
from offline_core.learning.start import read_initial, with_initial_network
from offline_core.learning.state import States, TrainingState
from offline_core.learning.user_data import UserData
from offline_core.policies.manifest import fingerprint_of
from offline_core.runtime.code_permission import recorded_environment
from offline_core.runtime.config import EnvironmentSpec
from offline_core.runtime.ray_session import ray_session
from offline_core.runtime.stage import DATASET, VERSION, Made, output, stage
from offline_core.runtime.user_code import code_digests

log = logging.getLogger(__name__)


@stage(
    "train",
    version=6,
    after="export",
    arguments=(DATASET, output("runs/policy", "Folder for checkpoints and metrics."), VERSION),
    run_name="train {config.algorithm} on {dataset}, seed {config.seed}",
    plan="plans.training:plan_training",
    short=("algorithm", "preset", "optimizer.max_updates", "evaluation.target_return"),
    is_alone=True,
)
def train(
    config: TrainingConfig, *, dataset: str, output: str, version: int | None = None, loaded: EpisodeBatch | None = None
) -> Made[TrainingResult]:
    """Learn a policy from recorded experience.

    Writes checkpoints `best` and `last`, metrics and TensorBoard files. The same dataset version and parameters give the same
    policy, bit for bit, on one kind of machine. An unfinished run resumes from its last state when it is called again; a
    finished one is reused.

    Arguments:
        dataset: URI of a dataset, or of what `data.source` or `data.data_class` reads.
        output: URI of a folder, created if need be.
        version: of the dataset, the latest if None.
        loaded: what `loaded_columns` returned for such a run; then this process reads nothing, and learns by itself.

    Raises:
        DatasetNotFoundError, VersionNotFoundError, EmptyDatasetError: There are no steps to learn from.
        DataError: The data is invalid.
        ConfigError: The algorithm cannot act in these spaces, or `initial_policy` has others or another network.
        CheckpointError: `initial_policy` is not a checkpoint, or was replaced meanwhile.
        LearningError: The loss is NaN or infinite, or too many learners were lost.
        StorageError: The output cannot be written; checked before training.
        BusyError: Another run is writing there.
    """
    folder = Location.of(output)
    with contextlib.ExitStack() as stack:
        if reads_by_ray(config.data):
            stack.enter_context(ray_session())
        run = asked_run(config, dataset, output, version)
        asked = replace(stored(run), afterwards=lambda: States(folder, TrainingState, run=run.identity).clear())
        begun = yield replace(asked, starts_itself=True)
        if run.config.compute.gpus_per_learner and not run.config.compute.learners and not torch.cuda.is_available():
            raise ConfigError("This process sees no GPU that Torch can use: set compute.gpus_per_learner to 0.")
        check_run(run)
        check_environment(run)
        begun.start()
        start = time.time()  # not while waiting for the lock
        states = States(folder, TrainingState, run=run.identity)
        if not run.changes_show:
            states.clear()  # the data may have changed
        if run.source.is_own and run.counted is None:
            run = replace(run, counted=count(run.source, run.algorithm()))
        for read in run.read:
            stack.enter_context(read.reading())
        compute = run.config.compute
        if os.environ.get("RAY_ADDRESS") and "auto" in (run.config.data.prelearners, compute.learners):
            stack.enter_context(ray_session())  # `planned` needs its CPUs
        run = planned(run)
        compute = run.config.compute
        if compute.learners or wants_prelearners(run.config.data):
            stack.enter_context(ray_session())
        if compute.learners:
            from offline_core.learning.group import learn_together

            result = learn_together(run, start=start)
        else:
            trained = learn(run, loader_of(run, loaded=loaded), held_out_loader_of(run), start=start)
            assert trained is not None
            result = trained
        log.info("Trained %s: %s updates, %s", result.checkpoint, f"{result.updates:,}", _outcome(result))
        log.info(result.bottleneck)
        return result


def make_run(config: TrainingConfig, dataset: str, output: str, version: int | None) -> Run:
    """Return a run that was looked at, see `asked_run` and `check_run`."""
    run = asked_run(config, dataset, output, version)
    check_run(run)
    return run


def asked_run(config: TrainingConfig, dataset: str, output: str, version: int | None) -> Run:
    """Return the run: all that decides what is learned."""
    config, initial = read_initial(config, output)
    source, held_out = _opened(config.data, dataset, version), config.evaluation.held_out
    config = with_initial_network(config, initial)
    config = with_target_return(with_reward_scale(config, source), source)
    environment = config.evaluation.environment
    if environment is None:
        environment = source.environment
        if config.evaluation.play:
            recorded_environment(environment, file=source.origin.ref.uri)
    run = Run(
        config=config,
        source=source,
        held_out=None if held_out is None else _opened(config.data, held_out, None),
        environment=environment,
        target_return=_target(config, environment),
        output=output,
        code=code_digests(config) | ({} if environment is None else code_digests(environment)),
        initial=initial,
    )
    if not source.origin.ref.steps:
        run = replace(run, counted=count(source, run.algorithm()))
    return replace(run, streamed=is_streamed(source, run.steps, config.data))


def check_run(run: Run) -> None:
    """Check by the networks, before anything is read, that the algorithm can learn from the data.

    Raises:
        ConfigError: It cannot, or the parameters do not fit it.
    """
    algorithm = run.algorithm()
    parameter_groups(algorithm, run.config.optimizer)
    run.initial_policy(algorithm.policy)
    _check_buffer(run, algorithm)
    _check_measured(run, algorithm)
    check_terminations(run.source, algorithm, run.config.data)


def check_environment(run: Run) -> None:
    """Check that the policy can be played.

    Raises:
        ConfigError: The environment cannot be made, or has other spaces.
    """
    if run.played_in is not None:
        run.algorithm().policy.check_spaces(run.played_in.id, spaces_of(run.played_in))


def with_reward_scale(config: TrainingConfig, source: Source) -> TrainingConfig:
    """Return the parameters with the factor of rewards as a number.

    Raises:
        ConfigError: It is that of the returns' range, and there is none.
    """
    rewards = config.data.rewards
    if rewards.scale != "return_range":
        return config
    lowest, highest = _returns(source, "data.rewards.scale")
    if not lowest < highest:
        raise ConfigError(
            f"The returns of {source.origin.ref.uri} differ by 0, so data.rewards.scale cannot be return_range: set it to a "
            "number."
        )
    number = rewards.model_copy(update={"scale": 1000 / (highest - lowest)})
    return config.model_copy(update={"data": config.data.model_copy(update={"rewards": number})})


def with_target_return(config: TrainingConfig, source: Source) -> TrainingConfig:
    """Return the parameters with the returns of dt as numbers.

    Raises:
        ConfigError: They are to be the dataset's, and those are not known.
    """
    if config.algorithm != "dt" or None not in (config.dt.target_return, config.dt.return_scale):
        return config
    parameters = "dt.target_return and dt.return_scale"
    if source.is_own:
        raise ConfigError(f"Your code makes the steps of {source.origin.ref.uri}, and so their returns: set {parameters}.")
    return config.model_copy(update={"dt": config.dt.of_dataset(*_returns(source, parameters))})


def _returns(source: Source, parameter: str) -> tuple[float, float]:
    """Return the lowest and the highest return of a dataset, for what `parameter` says.

    Raises:
        ConfigError: They are not known before it is read, or not finite.
    """
    uri = source.origin.ref.uri
    if not isinstance(source, Recorded):
        raise ConfigError(f"The returns of {uri} are not known before it is read: set {parameter} to a number.")
    returns = source.dataset.manifest.statistics.returns
    if returns.min is None or returns.max is None or not math.isfinite(returns.max - returns.min):
        raise ConfigError(f"The returns of {uri} are not finite numbers: set {parameter} to a number.")
    return returns.min, returns.max


def stored(run: Run) -> StoredResult[TrainingResult]:
    """Return where the result of a run is kept, and what it depends on."""
    return StoredResult(
        TrainingResult,
        Location.of(run.output),
        run.parents,
        fingerprint_of,
        outputs=lambda result: (result.checkpoint, result.last_checkpoint, *(each.checkpoint for each in result.kept)),
        operation=run.operation,
        may_reuse=run.changes_show,
    )


def found_result(run: Run) -> TrainingResult | None:
    """Return the result of the same run, if the data cannot have changed."""
    return stored(run).found(train)


def _opened(config: DataConfig, uri: str, version: int | None) -> Source:
    """Open the data as `config` says."""
    if config.data_class is None and config.source is None:
        return Recorded.of(open_committed(uri, version), config)
    if version is not None:
        raise ConfigError(f"{uri} is read by your code and has no version {version}; leave the version out.")
    return RawRows.of(uri, config) if config.data_class is None else UserData.of(uri, config)


def reads_by_ray(config: DataConfig) -> bool:
    """Whether opening the data needs Ray."""
    return config.data_class is not None or (config.source is not None and config.source.is_rays)


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


def check_terminations(source: Source, algorithm: Algorithm, config: DataConfig) -> None:
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


def _target(config: TrainingConfig, environment: EnvironmentSpec | None) -> float | None:
    if environment is None or not config.evaluation.play or config.evaluation.target_return is not None:
        return config.evaluation.target_return
    return reward_threshold(environment)


def _outcome(result: TrainingResult) -> str:
    if not result.metrics:
        return "never played"
    if "episode_return_mean" not in result.metrics:
        return f"held-out loss {result.metrics['held_out_loss']:.4g}"
    mean = f"mean return {result.metrics['episode_return_mean']:.1f} over {result.metrics['episodes']:.0f} episodes"
    if result.reached_target or result.target_return is None:
        return mean
    return f"{mean}; the target of {result.target_return:g} was not reached in {result.epochs:.1f} epochs, this is the best"
