"""Go on by play from what was learned from recordings, with batches of fresh and of recorded steps."""

from __future__ import annotations

import logging

from offline_core.data.datasets.dataset import open_committed
from offline_core.data.datasets.folder_kind import folder_at
from offline_core.data.datasets.manifest import Parent
from offline_core.data.datasets.result_cache import RESULT_FILE, StoredResult, stored_result
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError
from offline_core.learning.fine_tuning.config import FineTuneConfig
from offline_core.learning.result import NETWORKS_FILE, FineTuneResult, TrainingResult
from offline_core.policies.manifest import environment_for, fingerprint_of, read_policy_manifest
from offline_core.runtime.stage import DATASET, VERSION, Argument, Made, output, stage

log = logging.getLogger(__name__)


@stage(
    "fine_tune",
    version=5,
    after="train",
    arguments=(
        Argument("training", "Folder of the training.", "runs/policy", "training"),
        DATASET,
        output("runs/fine-tuned", "Folder for the checkpoint."),
        VERSION,
    ),
    run_name="fine-tune {training} with {dataset}, seed {config.seed}",
    short=("environment", "total_steps", "evaluation.target_return", "offline_share"),
    has_metrics=True,
    is_alone=True,
)
def fine_tune(
    config: FineTuneConfig, *, training: str, dataset: str, output: str, version: int | None = None
) -> Made[FineTuneResult]:
    """Go on by play from a training by iql, cal_ql, td3_bc and the like, with recorded and fresh steps.

    It begins with the networks that the training ended with (Ball et al. 2023, arXiv 2302.02948). The policy is evaluated
    first, and the best one is kept, so the result is never worse.

        <output>/best            the checkpoint with the best evaluation so far
        <output>/metrics.jsonl   one line an iteration, and one an evaluation
        <output>/checkpoints     the last two states of an unfinished run, which the same call goes on from

    Arguments:
        training: URI of the folder of a finished training by iql, cql, cal_ql, awac, td3_bc, rebrac, sac or td3.
        dataset: URI of recordings, of the same spaces, that `offline_share` of each batch are drawn from.
        output: URI of a folder, created if need be.
        version: of the dataset, the latest if None.

    Raises:
        ConfigError: The training cannot go on by play, or its policy does not fit the environment; nothing is written.
        CorruptFileError: The networks of the training are not those that it wrote.
        DatasetNotFoundError, VersionNotFoundError: There is no such dataset.
        LearningError: The loss became NaN or infinite.
        BusyError: Another run is writing to `output`.
    """
    networks_sha256, learned = _networks(training), open_committed(dataset, version)
    last = Location.of(training).child("last").uri
    manifest = read_policy_manifest(last)
    try:
        environment = environment_for(training, manifest, config.environment)
    except ConfigError:
        from offline_core.learning.fine_tuning.work import networks_of  # here, for what is reused needs no Torch

        networks_of(training, manifest)  # what no environment mends is said first
        raise
    config = config.model_copy(update={"environment": environment})
    networks = Parent(kind="files", uri=Location.of(training).child(NETWORKS_FILE).uri, fingerprint=networks_sha256[:16])
    begun = yield StoredResult(
        FineTuneResult,
        Location.of(output),
        [manifest.parent_entry(last), networks, learned.parent_entry],
        fingerprint_of,
        outputs=lambda result: [result.checkpoint],
        config=config,
        starts_itself=True,
        has_states=True,
    )
    from offline_core.learning.fine_tuning.work import learn_on  # here, for what is reused needs no Torch

    result = learn_on(config, training, manifest, networks_sha256, learned, begun)
    gained, steps = result.mean_return - result.start_return, f"{result.env_steps:,}"
    log.info("Fine-tuned %s: %.1f, %.1f more after %s steps", result.checkpoint, result.mean_return, gained, steps)
    return result


def _networks(training: str) -> str:
    """Return the hash of the networks of a finished training.

    Raises:
        ConfigError: the folder has no finished training.
    """
    if (stored := stored_result(Location.of(training).child(RESULT_FILE), TrainingResult)) is None:
        folder = folder_at(training)
        other_kind = "" if folder is None or folder.what == "the folder of a training" else f"{folder.what}, and "
        raise ConfigError(
            f"{training} is {other_kind}not the folder of a finished training; give the output of 'offline train'."
        )
    return stored[0].networks_sha256
