"""Record episodes of a policy, here or with a pool of workers, and commit them as one dataset version."""

from __future__ import annotations

import functools
import logging
import os
import secrets
import time
from collections.abc import Sequence

from offline_core.data.datasets.dataset import Dataset
from offline_core.data.datasets.manifest import Statistics
from offline_core.data.datasets.new_version import NewVersion
from offline_core.data.environments.vector_env import spaces_of
from offline_core.data.formats import exporting
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.manifest import PolicyManifest, environment_for, find_policy
from offline_core.policies.policy import Policy
from offline_core.policies.recording.clips import check_renders, make_clips
from offline_core.policies.recording.config import RecordingConfig, RecordingExport
from offline_core.policies.recording.player import EpisodesToPlay, episodes_to_play
from offline_core.policies.recording.recorder import Recorder, Written
from offline_core.policies.recording.result import RecorderShare, RecordingResult
from offline_core.runtime.code_permission import remember_code
from offline_core.runtime.progress import progress
from offline_core.runtime.ray_session import ray_is_up, ray_session
from offline_core.runtime.stage import Made, output, stage
from offline_core.runtime.stage import policy as of_policy
from offline_core.runtime.torch_settings import torch_threads

log = logging.getLogger(__name__)

MAX_SEED = 2**31 - 1
RAY_START_SECONDS = 6.0
"""From the start of Ray and its recorders to the first episode."""

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
    start = time.perf_counter()
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
        return _finished(result, dataset, config, export, policy, manifest)

    asked = config.model_copy(update={"num_recorders": config.recorders})
    begun = yield NewVersion(
        output, asked, [manifest.parent_entry(policy)], lambda dataset: _result(dataset, manifest), finish, exclude=_HOW_FAST
    )
    start = time.perf_counter()
    if config.video is not None:
        check_renders(environment)
    player = load_policy(policy, manifest)
    spaces = spaces_of(environment)
    player.check_spaces(environment.id, spaces)
    written, shares = _play_all(config, player, manifest.fingerprint, Location.of(output).uri)
    return begun.commit(
        [file for part in written for file in part.files],
        format=config.format,
        statistics=functools.reduce(Statistics.merge, (part.statistics for part in written)),
        environment=environment,
        observation_space=spaces[0],
        action_space=spaces[1],
        report={"recorders": [share.model_dump() for share in shares], "seconds": time.perf_counter() - start},
    )


def _finished(
    result: RecordingResult,
    dataset: Dataset,
    config: RecordingConfig,
    export: RecordingExport | None,
    policy: str,
    manifest: PolicyManifest,
) -> RecordingResult:
    """With clips and an export, as far as they are asked for."""
    if config.video is not None:
        assert config.environment is not None
        check_renders(config.environment)
        with torch_threads(1):
            clips = make_clips(config, load_policy(policy, manifest).eval(), manifest.fingerprint, dataset)
        result = result.model_copy(update={"clips": clips})
    return _exported(result, export)


def _exported(result: RecordingResult, export: RecordingExport | None) -> RecordingResult:
    if export is None:
        return result
    dataset = result.dataset
    written = exporting.export(export, dataset=dataset.uri, output=export.output, version=dataset.version)
    return result.model_copy(update={"export": written})


def _result(dataset: Dataset, policy: PolicyManifest) -> RecordingResult:
    manifest = dataset.manifest
    assert manifest.environment is not None and manifest.actions is not None
    was_sampled = policy.operation.config.get("evaluation_actions") == "sampled"
    was_played_there = policy.environment == manifest.environment and not was_sampled
    return RecordingResult(
        dataset=dataset.ref,
        policy=manifest.parents[0].fingerprint,
        environment=manifest.environment.id,
        statistics=manifest.statistics,
        recorders=manifest.report.get("recorders", []),  # older manifests have none
        seconds=manifest.report.get("seconds", 0.0),
        actions=manifest.actions,
        greedy_return=policy.metrics.get("episode_return_mean") if was_played_there else None,
    )


def _play_all(config: RecordingConfig, policy: Policy, identity: str, output: str) -> tuple[list[Written], list[RecorderShare]]:
    """Send the policy itself to the recorders: they play the same one even if its checkpoint is replaced meanwhile."""
    tasks = episodes_to_play(rounds=config.rounds, episodes=config.episodes, num_recorders=config.recorders)
    played: dict[EpisodesToPlay, Written] = {}
    if config.num_recorders == "auto" and not ray_is_up() and not os.environ.get("RAY_ADDRESS"):
        played = _play_here(Recorder(policy, identity, config, output), tasks)
        if len(played) == len(tasks):
            return [played[task] for task in tasks], [RecorderShare.of("here", list(played.values()))]
    with ray_session():
        rest, shares = _play_by_actors(config, policy, identity, output, [task for task in tasks if task not in played])
    shares = [RecorderShare.of("here", list(played.values())), *shares] if played else shares
    return [(played | rest)[task] for task in tasks], shares


def _play_here(recorder: Recorder, tasks: Sequence[EpisodesToPlay]) -> dict[EpisodesToPlay, Written]:
    """Play tasks until `RAY_START_SECONDS` are over; actors play those that are left."""
    begin, played = time.perf_counter(), dict[EpisodesToPlay, Written]()
    with torch_threads(1), progress(sum(task.episodes for task in tasks), what="record", unit="episode") as bar:
        for task in tasks:
            try:
                left = RAY_START_SECONDS - (time.perf_counter() - begin)
                played[task] = recorder.record(task, limit_seconds=left)
            except TimeoutError:
                break
            bar.update(task.episodes)
    return played


def _play_by_actors(
    config: RecordingConfig, policy: Policy, identity: str, output: str, tasks: Sequence[EpisodesToPlay]
) -> tuple[dict[EpisodesToPlay, Written], list[RecorderShare]]:
    import ray

    from offline_core.policies.recording.worker_pool import WorkerPool, room_for_recorders

    cpus = config.cpus_per_recorder
    if not (room := room_for_recorders(cpus)):
        most = max((node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]), default=0.0)
        raise ConfigError(f"A recorder needs {cpus:g} CPUs and no node of Ray has more than {most:g}; lower cpus_per_recorder.")
    pool = WorkerPool(
        (ray.put(policy), identity, config, output),
        count=min(config.recorders, len(tasks), room),
        cpus=cpus,
        max_losses=config.max_recorder_restarts,
    )
    try:
        return pool.play(tasks), pool.shares
    finally:
        pool.close()
