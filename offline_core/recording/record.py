"""Records episodes of a policy: shares the work out, and commits one dataset version at the end."""

from __future__ import annotations

import functools
import logging
import secrets
import time
from typing import TYPE_CHECKING

from offline_core.code_permission import recorded_environment, remember_code
from offline_core.config import EnvironmentSpec
from offline_core.conversion.exporting import check_export, export_dataset
from offline_core.environments import spaces_of
from offline_core.errors import ConfigError
from offline_core.policies.checkpoint import load_policy, read_policy_manifest
from offline_core.policies.policy import Policy
from offline_core.ray_session import ray_session
from offline_core.recording.config import RecordingConfig, RecordingExport
from offline_core.recording.player import assignments
from offline_core.recording.result import RecorderShare, RecordingResult
from offline_core.storage.committing import commit, find_version
from offline_core.storage.dataset import Dataset
from offline_core.storage.location import Location
from offline_core.storage.manifest import Operation, Statistics
from offline_core.storage.preparing import prepared

if TYPE_CHECKING:
    from offline_core.recording.recorder import Written

log = logging.getLogger(__name__)

MAX_SEED = 2**31 - 1

_HOW_FAST = {"cpus_per_recorder", "max_recorder_restarts"}
"""Parameters that do not change what is recorded, and so are no part of what identifies it."""


def record_episodes(
    config: RecordingConfig, *, policy: str, output: str, export: RecordingExport | None = None
) -> RecordingResult:
    """Plays `policy` for `rounds` times `episodes` complete episodes and commits them as the next version of `output`.

    The version appears when all rounds are done: whole, or not at all. After a failure the files already written are
    leftovers that no manifest lists; the same recording writes them again under the same names. If the same was recorded
    before, nothing is played.

    Arguments:
        policy: URI of a checkpoint.
        output: URI of the dataset's folder, created if need be.
        export: where the committed version is then also written to, in another format or by a writer of the user's own.

    Raises:
        CheckpointError: there is no policy to play.
        ConfigError: the environment cannot be made or does not fit the policy, or a recorder fits on no node.
        StorageError: the output cannot be written; checked before anything is played.
        ClusterError: there is no Ray at `RAY_ADDRESS`.
        DataError: the format of `export` cannot hold an episode; the recording is there by then.
        RecorderError: the same work lost its recorder more often than `max_recorder_restarts`, or there is no node left.
    """
    start = time.perf_counter()
    seed = secrets.randbelow(MAX_SEED + 1) if config.seed is None else config.seed
    remember_code(config)
    manifest = read_policy_manifest(policy)
    environment = config.environment or recorded_environment(manifest.environment, file=policy)
    if environment is None:
        raise ConfigError(f"Policy {policy} does not say where it was trained; name the environment to record in.")
    config = config.model_copy(update={"seed": seed, "environment": environment})
    if export is not None:
        remember_code(export)
        check_export(export, environment, output=export.output, dataset=output)
    operation = Operation.of("record_episodes", config, exclude=_HOW_FAST)
    parents = [manifest.parent_entry(policy)]
    if found := find_version(output, operation, parents):
        return _exported(_result(found, reused=True), export)
    player = load_policy(policy, manifest)
    spaces = spaces_of(environment)
    player.check_spaces(environment.id, spaces)
    with prepared(output), ray_session():
        written, shares = _play_all(config, seed, player, manifest.fingerprint, environment, Location.of(output).uri)
    dataset = commit(
        output,
        [file for part in written for file in part.files],
        format=config.format,
        operation=operation,
        statistics=functools.reduce(Statistics.merge, (part.statistics for part in written)),
        parents=parents,
        environment=environment,
        observation_space=spaces[0],
        action_space=spaces[1],
        report={"recorders": [share.model_dump() for share in shares], "seconds": time.perf_counter() - start},
    )
    log.info("Recorded %s", dataset.ref)
    return _exported(_result(dataset), export)


def _exported(result: RecordingResult, export: RecordingExport | None) -> RecordingResult:
    if export is None:
        return result
    dataset = result.dataset
    written = export_dataset(export, dataset=dataset.uri, output=export.output, version=dataset.version)
    return result.model_copy(update={"export": written})


def _result(dataset: Dataset, *, reused: bool = False) -> RecordingResult:
    manifest = dataset.manifest
    assert manifest.environment is not None
    return RecordingResult(
        dataset=dataset.ref,
        policy=manifest.parents[0].fingerprint,
        environment=manifest.environment.id,
        statistics=manifest.statistics,
        recorders=manifest.report.get("recorders", []),  # earlier versions of this program did not write them down
        seconds=manifest.report.get("seconds", 0.0),
        reused=reused,
    )


def _play_all(
    config: RecordingConfig, seed: int, policy: Policy, identity: str, environment: EnvironmentSpec, output: str
) -> tuple[list[Written], list[RecorderShare]]:
    """The policy itself goes to the recorders, so that all play the same one whatever becomes of its checkpoint."""
    import ray

    from offline_core.recording.crew import Crew, room_for_recorders

    cpus = config.cpus_per_recorder
    if not (room := room_for_recorders(cpus)):
        most = max((node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]), default=0.0)
        raise ConfigError(f"A recorder wants {cpus:g} CPUs and no node of Ray has more than {most:g}; lower cpus_per_recorder.")
    work = assignments(rounds=config.rounds, episodes=config.episodes, num_recorders=config.num_recorders)
    crew = Crew(
        (ray.put(policy), identity, environment, config, seed, output),
        count=min(config.num_recorders, len(work), room),
        cpus=cpus,
        max_losses=config.max_recorder_restarts,
    )
    try:
        results = crew.play(work)
        return [results[assignment] for assignment in work], crew.shares
    finally:
        crew.close()
