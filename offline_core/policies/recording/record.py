"""Record episodes of a policy, here or with a pool of workers, and commit them as one dataset version."""

from __future__ import annotations

import logging
import secrets

from offline_core.data.datasets.dataset import Dataset
from offline_core.data.datasets.new_version import NewVersion
from offline_core.data.formats import exporting
from offline_core.policies.manifest import PolicyManifest, environment_for, find_policy
from offline_core.policies.recording.config import RecordingConfig, RecordingExport
from offline_core.policies.recording.result import RecordingResult
from offline_core.runtime.code_permission import remember_code
from offline_core.runtime.stage import Made, output, stage
from offline_core.runtime.stage import policy as of_policy

log = logging.getLogger(__name__)

MAX_SEED = 2**31 - 1

_HOW_FAST = {"cpus_per_recorder", "max_recorder_restarts", "video"}
"""Parameters that do not change the episodes, and so are no part of the operation's identity."""


@stage(
    "record",
    after="train_expert",
    arguments=(of_policy("play", "runs/expert/best"), output("runs/recording")),
    writes=("dataset",),
    hint="With -s export.format=… and -s export.output=… it is also written in another format.",
    run_name="record {policy}, {config.episodes} episodes, seed {config.seed}",
    event="dataset.recorded",
    plan="plans.recording:plan_recording",
    groups={"export": RecordingExport},
    short=("episodes", "explore", "format", "num_recorders", "seed"),
)
def record(
    config: RecordingConfig, *, policy: str, output: str, export: RecordingExport | None = None
) -> Made[RecordingResult]:
    """Record complete episodes of a policy as the next version of a dataset.

    It plays `rounds` times `episodes`. The version appears whole when all rounds are done, or not at all. After a failure no
    manifest lists the files already written; the same recording writes them again under the same names. The same recording
    from before is reused.

    Arguments:
        policy: URI of a checkpoint, or the address of a registered one.
        output: URI of the dataset's folder, created if need be.
        export: also writes the committed version in another format, or by a user writer.

    Raises:
        CheckpointError: `policy` is not a checkpoint.
        ConfigError: the environment cannot be made, does not fit the policy, or does not render though clips are asked for; or
            a recorder fits on no node.
        StorageError: the output cannot be written; checked before anything is played.
        ClusterError: no Ray answers at `RAY_ADDRESS`.
        DataError: the format of `export` cannot hold an episode; the recording is committed by then.
        RecorderError: a task lost its recorder more often than `max_recorder_restarts`, or no node is left.
    """
    policy, manifest = find_policy(policy)
    environment = environment_for(policy, manifest, config.environment)
    if (seed := config.seed) is None:
        seed = secrets.randbelow(MAX_SEED + 1)
        log.info("The seed is %d: it is another one each time, and this one plays the same episodes again.", seed)
    config = config.model_copy(update={"seed": seed, "environment": environment})
    if export is not None:
        remember_code(export)
        exporting.check_export(export, environment, output=export.output, dataset=output)

    def finish(result: RecordingResult, dataset: Dataset) -> RecordingResult:
        if config.video is not None:
            from offline_core.policies.recording.clips import make_clips  # here, for what is reused needs no Torch

            result = result.model_copy(update={"clips": make_clips(config, policy, manifest, dataset)})
        if export is None:
            return result
        recorded = result.dataset
        written = exporting.export(export, dataset=recorded.uri, output=export.output, version=recorded.version)
        return result.model_copy(update={"export": written})

    asked = config.model_copy(update={"num_recorders": config.recorders})
    begun = yield NewVersion(
        output, asked, [manifest.parent_entry(policy)], lambda dataset: _result(dataset, manifest), finish, exclude=_HOW_FAST
    )
    from offline_core.policies.recording.work import played  # here, for what is reused needs no Torch

    return played(config, policy, manifest, begun)


def _result(dataset: Dataset, policy: PolicyManifest) -> RecordingResult:
    manifest = dataset.manifest
    assert manifest.environment is not None and manifest.actions is not None
    was_sampled = policy.operation.config.get("evaluation", {}).get("actions") == "sampled"
    was_played_there = policy.environment == manifest.environment and not was_sampled
    return RecordingResult(
        dataset=dataset.ref,
        policy=manifest.parents[0].fingerprint,
        environment=manifest.environment.id,
        statistics=manifest.statistics,
        recorders=manifest.report["recorders"],
        seconds=manifest.report["seconds"],
        actions=manifest.actions,
        greedy_return=policy.metrics.get("episode_return_mean") if was_played_there else None,
    )
