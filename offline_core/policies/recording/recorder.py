"""Play tasks and write their episodes from the same process to storage."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from offline_core.data.datasets.manifest import FileEntry
from offline_core.data.datasets.statistics import Statistics
from offline_core.data.datasets.writer import EpisodeWriter
from offline_core.data.store.location import Location
from offline_core.policies.policy import Policy
from offline_core.policies.recording.config import RecordingConfig
from offline_core.policies.recording.player import EpisodesToPlay, play


@dataclass(frozen=True, slots=True)
class Written:
    """The files and statistics of one task."""

    files: list[FileEntry]
    statistics: Statistics
    seconds: float


class Recorder:
    """Runs in a Ray actor, or in the calling process.

    The files of a task depend on the task and the parameters alone, and so do their names. A recorder that repeats the task
    of a lost one writes the same files again, and no episode exists twice.

    Arguments:
        identity: of the policy.
        config: with its environment and seed.
    """

    def __init__(self, policy: Policy, identity: str, config: RecordingConfig, root_uri: str) -> None:
        self._policy = policy.eval()
        self._identity = identity
        self._config = config
        self._root = Location.of(root_uri)
        self._episodes = 0

    def episodes(self) -> int:
        """How many episodes of its task `record` has finished so far."""
        return self._episodes

    def record(self, task: EpisodesToPlay, *, limit_seconds: float = math.inf) -> Written:
        """Play a task to its end; its files are complete when this returns.

        Raises:
            TimeoutError: it takes longer than `limit_seconds`. Playing the task again writes the same files.
        """
        start = time.perf_counter()
        config, self._episodes = self._config, 0
        assert config.environment is not None and config.seed is not None
        folder = config.environment.id.rpartition(":")[2].replace("/", "-").lower()
        prefix = f"{folder}/run-{task.recorder + 1:06d}-{task.round + 1:05d}/part"
        with EpisodeWriter(self._root, prefix, format=config.format, config=config.files) as writer:
            for episodes in play(
                self._policy,
                config.environment,
                task,
                identity=self._identity,
                num_envs=config.envs_per_recorder,
                seed=config.seed,
                explore=config.explore,
                keep_action_distribution=config.keep_action_distribution,
                deadline=start + limit_seconds,
            ):
                writer.write([episode.validate() for episode in episodes])
                self._episodes += len(episodes)
        return Written(writer.files, writer.statistics, time.perf_counter() - start)
