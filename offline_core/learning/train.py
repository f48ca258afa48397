"""Trains a policy from a dataset: data loader → learners, with evaluations beside, until it reaches its target."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import replace

from offline_core.data.datasets.result_cache import StoredResult
from offline_core.data.episodes import EpisodeBatch
from offline_core.data.store.location import Location
from offline_core.learning.config import TrainingConfig
from offline_core.learning.result import TrainingResult
from offline_core.learning.run import Run, asked_run
from offline_core.policies.manifest import fingerprint_of
from offline_core.runtime.ray_session import ray_session
from offline_core.runtime.stage import DATASET, VERSION, Made, output, stage
from offline_core.runtime.units import number_text

log = logging.getLogger(__name__)


@stage(
    "train",
    version=10,
    after="export",
    arguments=(DATASET, output("runs/policy", "Folder for checkpoints and metrics."), VERSION),
    run_name="train {config.algorithm} on {dataset}, seed {config.seed}",
    plan="plans.training:plan_training",
    short=("algorithm", "preset", "optimizer.max_updates", "evaluation.target_return"),
    has_metrics=True,
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
    with contextlib.ExitStack() as stack:
        if config.data.reads_by_ray:
            stack.enter_context(ray_session())
        run = asked_run(config, dataset, output, version)
        for name in sorted(config.unused & config.model_fields_set):
            if (group := getattr(config, name)) != type(group)():
                log.warning("The parameters of %s have no effect: the algorithm is %s.", name, config.algorithm)
        begun = yield replace(stored(run), starts_itself=True)
        from offline_core.learning.work import train_run  # here, for what is reused needs no Torch

        result = train_run(run, begun.start, loaded)
    log.info("Trained %s: %s updates, %s", result.checkpoint, f"{result.updates:,}", _outcome(result))
    log.info(result.bottleneck)
    return result


def stored(run: Run) -> StoredResult[TrainingResult]:
    """Return where the result of a run is kept, and what it depends on."""
    return StoredResult(
        TrainingResult,
        Location.of(run.output),
        run.parents,
        fingerprint_of,
        outputs=lambda result: (result.checkpoint, result.last_checkpoint, *(policy.checkpoint for policy in result.kept)),
        operation=run.operation,
        may_reuse=run.changes_show,
        has_states=True,
    )


def found_result(run: Run) -> TrainingResult | None:
    """Return the result of the same run, if the data cannot have changed."""
    return stored(run).found(train)


def _outcome(result: TrainingResult) -> str:
    if not result.metrics:
        return "never played"
    if "episode_return_mean" not in result.metrics:
        return f"held-out loss {result.metrics['held_out_loss']:.4g}"
    mean = f"mean return {number_text(result.metrics['episode_return_mean'])} over {result.metrics['episodes']:.0f} episodes"
    if result.reached_target or result.target_return is None:
        return mean
    return f"{mean}; the target of {result.target_return:g} was not reached in {result.epochs:.1f} epochs, this is the best"
