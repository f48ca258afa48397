"""Trains a policy from a dataset: feed → learner, evaluated on the side, stopped when it is good enough."""

from __future__ import annotations

import contextlib
import logging
import time

import torch

from offline_core.config import EnvironmentSpec
from offline_core.conversion.importing import open_or_import
from offline_core.environments import reward_threshold, spaces_of
from offline_core.episodes import columns
from offline_core.learning.checkpoints import Checkpoints
from offline_core.learning.config import TrainingConfig
from offline_core.learning.evaluations import Evaluations
from offline_core.learning.learner import Learner
from offline_core.learning.loop import TrainingLoop
from offline_core.learning.losses import ALGORITHMS
from offline_core.learning.metrics import MetricsLog
from offline_core.learning.result import TrainingResult
from offline_core.learning.source import make_feed, training_spaces
from offline_core.policies.policy import Policy
from offline_core.ray_session import ray_session
from offline_core.seeding import derive_seed
from offline_core.storage.location import Location
from offline_core.storage.ray_reader import reading

log = logging.getLogger(__name__)


def train_policy(config: TrainingConfig, *, dataset: str, output: str, version: int | None = None) -> TrainingResult:
    """Learns a policy from `dataset` and leaves checkpoints `best` and `last`, metrics and TensorBoard files in `output`.

    The same dataset version and parameters give the same policy, bit for bit, on one kind of machine.

    Arguments:
        dataset: URI of a dataset, or of a folder of RLlib's episode files.
        output: URI of a folder, created if need be.
        version: of the dataset, the latest if None.

    Raises:
        DatasetNotFoundError, VersionNotFoundError, EmptyDatasetError: there is nothing to learn from.
        DataError: the experience is not what it has to be.
        LearningError: the loss is no number any more.
        StorageError: the output cannot be written; checked before anything is trained.
    """
    start = time.perf_counter()
    source = open_or_import(dataset, version, output=output)
    environment = config.environment or source.manifest.environment
    torch.set_num_threads(config.compute.torch_threads)
    spaces = training_spaces(source)
    algorithm = ALGORITHMS[config.algorithm]
    policy = Policy(*spaces, config.network, value_function=algorithm.value_function, seed=config.seed)
    if environment is not None:
        policy.check_spaces(environment.id, spaces_of(environment))
    checkpoints = Checkpoints(policy, Location.of(output).make_folder(), config, environment, source)
    with ray_session(), contextlib.ExitStack() as stack:
        evaluations = None
        if environment is not None:
            seed = derive_seed(config.seed, "evaluation")
            evaluations = Evaluations(policy, environment, episodes=config.evaluation.episodes, seed=seed)
            stack.callback(evaluations.close)
        stack.enter_context(reading(source))
        feed = make_feed(source, config, algorithm, spaces)
        metrics = MetricsLog(checkpoints.folder)
        stack.callback(metrics.close)
        learner = Learner(policy, algorithm.loss, config.optimizer)
        loop = TrainingLoop(config, learner, evaluations, metrics, _target(config, environment), on_best=checkpoints.save_best)
        if config.network.normalize_observations:
            for batch in feed.batches(0):
                policy.encoder.update_statistics(learner.nested(batch)[columns.OBS])
        load_seconds = time.perf_counter() - start
        loop.run(feed)
    last = checkpoints.save("last", loop.last_weights, loop.last_metrics)
    best = checkpoints.save("best", loop.last_weights, {}) if loop.best is None else checkpoints.folder.child("best").uri
    end = loop.reports[-1]
    result = TrainingResult(
        checkpoint=best,
        last_checkpoint=last,
        dataset=source.ref,
        updates=end.updates,
        steps=end.steps,
        epochs=end.steps / (feed.steps or end.steps),
        metrics={} if loop.best is None else loop.best.rollouts.metrics,
        target_return=loop.target_return,
        reached_target=loop.reached_target,
        curve=loop.curve,
        losses=[(report.updates, report.loss) for report in loop.reports],
        seconds=time.perf_counter() - start,
        load_seconds=load_seconds,
        update_seconds=loop.update_seconds,
        data_wait_seconds=loop.data_wait_seconds,
        steps_per_second=loop.steps / (loop.update_seconds + loop.data_wait_seconds),
    )
    log.info("Trained %s: %s updates, %s", best, f"{result.updates:,}", _outcome(result))
    return result


def _target(config: TrainingConfig, environment: EnvironmentSpec | None) -> float | None:
    if environment is None or config.evaluation.target_return is not None:
        return config.evaluation.target_return
    return reward_threshold(environment)


def _outcome(result: TrainingResult) -> str:
    if not result.metrics:
        return "never played, for there is no environment to play in"
    mean = f"mean return {result.metrics['episode_return_mean']:.1f} over {result.metrics['episodes']:.0f} episodes"
    if result.reached_target or result.target_return is None:
        return mean
    return f"{mean}; the target of {result.target_return:g} was not reached in {result.epochs:.1f} epochs, this is the best"
