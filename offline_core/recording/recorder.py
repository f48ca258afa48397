"""The actor that plays assignments and writes their episodes, straight from its own process to storage."""

from __future__ import annotations

import time
from dataclasses import dataclass

import ray
import torch

from offline_core.config import EnvironmentSpec
from offline_core.policies.policy import Policy
from offline_core.recording.config import RecordingConfig
from offline_core.recording.player import Assignment, play
from offline_core.storage.location import Location
from offline_core.storage.manifest import FileEntry, Statistics
from offline_core.storage.writer import EpisodeWriter


@dataclass(frozen=True, slots=True)
class Written:
    """What came of one assignment."""

    files: list[FileEntry]
    statistics: Statistics
    seconds: float


class Recorder:
    """Made into a Ray actor by `record_episodes`.

    The files of an assignment depend on nothing but the assignment and the parameters, down to their names. So when an
    actor dies and its work is done again by another, the same files are put down again, and nothing is there twice.
    """

    def __init__(
        self,
        policy: Policy,
        identity: str,
        environment: EnvironmentSpec,
        config: RecordingConfig,
        seed: int,
        root_uri: str,
    ) -> None:
        torch.set_num_threads(1)
        self._policy = policy.eval()
        self._identity = identity
        self._environment = environment
        self._config = config
        self._seed = seed
        self._root = Location.of(root_uri)
        self._episodes = 0

    @ray.method(concurrency_group="progress")  # type: ignore[untyped-decorator]
    def episodes(self) -> int:
        """How many of the assignment were played so far (asked from outside while `record` runs)."""
        return self._episodes

    def node(self) -> str:
        """Address of the machine this runs on."""
        return str(ray.util.get_node_ip_address())

    def record(self, assignment: Assignment) -> Written:
        """Plays the assignment to its end; all its files are complete when this returns."""
        start = time.perf_counter()
        config, self._episodes = self._config, 0
        folder = self._environment.id.rpartition(":")[2].replace("/", "-").lower()
        prefix = f"{folder}/run-{assignment.recorder + 1:06d}-{assignment.round + 1:05d}/part"
        with EpisodeWriter(self._root, prefix, format=config.format, config=config.files) as writer:
            for episodes in play(
                self._policy,
                self._environment,
                assignment,
                identity=self._identity,
                num_envs=config.envs_per_recorder,
                seed=self._seed,
                explore=config.explore,
                keep_action_distribution=config.keep_action_distribution,
            ):
                writer.write([episode.validate() for episode in episodes])
                self._episodes += len(episodes)
        return Written(writer.files, writer.statistics, time.perf_counter() - start)
