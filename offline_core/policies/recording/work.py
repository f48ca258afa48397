"""The work of a recording: episodes are played here or by a pool of workers, and committed."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Sequence

from offline_core.data.datasets.dataset import Dataset
from offline_core.data.datasets.new_version import BegunVersion
from offline_core.data.datasets.statistics import Statistics
from offline_core.data.environments.vector_env import spaces_of
from offline_core.errors import ConfigError
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.manifest import PolicyManifest
from offline_core.policies.policy import Policy
from offline_core.policies.recording.clips import check_renders
from offline_core.policies.recording.config import RecordingConfig
from offline_core.policies.recording.player import EpisodesToPlay, Recorder, Written, episodes_to_play
from offline_core.policies.recording.result import RecorderShare
from offline_core.runtime.progress import progress
from offline_core.runtime.ray_session import ray_is_up, ray_session
from offline_core.runtime.torch_settings import torch_threads

RAY_START_SECONDS = 6.0
"""From the start of Ray and its recorders to the first episode."""


def played(config: RecordingConfig, policy: str, manifest: PolicyManifest, begun: BegunVersion) -> Dataset:
    """Play and commit what `record` records, see there.

    Arguments:
        config: with the environment and the seed.
    """
    environment = config.environment
    assert environment is not None
    start = time.perf_counter()
    if config.video is not None:
        check_renders(environment)
    player = load_policy(policy, manifest)
    spaces = spaces_of(environment)
    player.check_spaces(f"environment {environment.id}", spaces)
    written, shares = _play_all(config, player, manifest.fingerprint, begun.folder.uri)
    return begun.commit(
        [file for part in written for file in part.files],
        format=config.format,
        statistics=functools.reduce(Statistics.merge, (part.statistics for part in written)),
        environment=environment,
        observation_space=spaces[0],
        action_space=spaces[1],
        report={"recorders": [share.model_dump() for share in shares], "seconds": time.perf_counter() - start},
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
