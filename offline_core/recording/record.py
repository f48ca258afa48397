"""Records episodes of a policy: shares the work out, watches over it, and commits one dataset version at the end."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any

from offline_core.config import EnvironmentSpec
from offline_core.environments import spaces_of
from offline_core.errors import ConfigError, RecorderError
from offline_core.policies.checkpoint import load_policy, read_policy_manifest
from offline_core.policies.policy import Policy
from offline_core.progress import progress
from offline_core.ray_session import fetch, ray_session
from offline_core.recording.config import RecordingConfig
from offline_core.recording.player import assignments
from offline_core.storage.dataset import DatasetRef, commit, prepare_dataset
from offline_core.storage.location import Location
from offline_core.storage.manifest import Operation, Statistics

if TYPE_CHECKING:
    from offline_core.recording.recorder import Written

log = logging.getLogger(__name__)

POLL_SECONDS = 0.5

_HOW_FAST = {"cpus_per_recorder", "max_recorder_restarts"}
"""Parameters that do not change what is recorded, and so are no part of what identifies it."""


def record_episodes(config: RecordingConfig, *, policy: str, output: str) -> DatasetRef:
    """Plays `policy` for `rounds` times `episodes` complete episodes and commits them as the next version of `output`.

    The version appears when all rounds are done: whole, or not at all. After a failure the files already written are
    leftovers that no manifest lists; the same recording writes them again under the same names.

    Arguments:
        policy: URI of a checkpoint.
        output: URI of the dataset's folder, created if need be.

    Raises:
        CheckpointError: there is no policy to play.
        ConfigError: the environment cannot be made or does not fit the policy.
        StorageError: the output cannot be written; checked before anything is played.
        RecorderError: a recorder died more often than `max_recorder_restarts`.
    """
    manifest, player = read_policy_manifest(policy), load_policy(policy)
    environment = config.environment or manifest.environment
    if environment is None:
        raise ConfigError(f"Policy {policy} does not say where it was trained; name the environment to record in.")
    spaces = spaces_of(environment)
    player.check_spaces(environment.id, spaces)
    prepare_dataset(output)
    with ray_session():
        written = _record_all(config, player, manifest.fingerprint, environment, Location.of(output).uri)
    dataset = commit(
        output,
        [file for part in written for file in part.files],
        format=config.format,
        operation=Operation(name="record_episodes", config=config.model_dump(mode="json", exclude=_HOW_FAST)),
        statistics=functools.reduce(Statistics.merge, (part.statistics for part in written)),
        parents=[manifest.parent_entry(policy)],
        environment=environment,
        observation_space=spaces[0],
        action_space=spaces[1],
    )
    log.info("Recorded %s", dataset.ref)
    return dataset.ref


def _record_all(
    config: RecordingConfig, policy: Policy, identity: str, environment: EnvironmentSpec, output: str
) -> list[Written]:
    """The policy itself goes to the recorders, so that all play the same one whatever becomes of its checkpoint."""
    import ray

    from offline_core.recording.recorder import Recorder

    work = assignments(rounds=config.rounds, episodes=config.episodes, num_recorders=config.num_recorders)
    actor = ray.remote(
        num_cpus=config.cpus_per_recorder,
        max_restarts=config.max_recorder_restarts,
        max_task_retries=config.max_recorder_restarts,
        concurrency_groups={"progress": 1},
    )(Recorder)
    count = min(config.num_recorders, len(work), _how_many_fit(config))
    policy_reference = ray.put(policy)
    recorders = [actor.remote(policy_reference, identity, environment, config, output) for _ in range(count)]
    try:
        # What an assignment gives does not depend on who plays it.
        pending = results = [recorders[i % count].record.remote(item) for i, item in enumerate(work)]
        total = config.rounds * config.episodes
        with progress(total, what="record", unit="episode") as bar:
            while pending:
                done, pending = ray.wait(pending, timeout=POLL_SECONDS, fetch_local=False)
                fetch(done)  # the first error ends the recording
                bar.to(sum(_progress(recorder) for recorder in recorders))
            bar.to(total)
        return list(fetch(results))
    except ray.exceptions.RayActorError as error:
        raise RecorderError(
            f"A recorder died {config.max_recorder_restarts + 1} times while recording to {output}; nothing was committed. "
            f"Too little memory is the usual reason: lower envs_per_recorder or num_recorders. Ray says: {error}"
        ) from error
    finally:
        for recorder in recorders:
            ray.kill(recorder)


def _how_many_fit(config: RecordingConfig) -> int:
    import ray

    cpus = ray.cluster_resources().get("CPU", 0.0)
    if cpus < config.cpus_per_recorder:
        raise ConfigError(
            f"A recorder wants {config.cpus_per_recorder:g} CPUs and Ray has {cpus:g}; lower cpus_per_recorder to that at most."
        )
    return int(cpus // config.cpus_per_recorder)


def _progress(recorder: Any) -> int:
    import ray

    try:
        return int(ray.get(recorder.episodes.remote(), timeout=POLL_SECONDS))
    except (ray.exceptions.GetTimeoutError, ray.exceptions.RayActorError):
        return 0  # starting, or being replaced
