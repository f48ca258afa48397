"""Record what an expert learns from: the episodes that it plays itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from offline_core.data.datasets.manifest import FileEntry, Statistics
from offline_core.data.datasets.writer import EpisodeWriter
from offline_core.data.episodes import Episode, decode, encode
from offline_core.data.store.location import Location
from offline_core.learning.experts.config import ExpertRecording
from offline_core.policies.recording.episode_builder import EpisodeBuilder
from offline_core.policies.recording.player import eps_id
from offline_core.policies.rollouts.tapped_env import TappedEnv

STEPS_AT_A_TIME = 1024
"""Of each copy, that are kept before episodes are made of them."""


class ReplayRecorder:
    """Records each step of an expert once, in episodes in the order of their ends.

    Episodes that are open when the training ends, or in the state that a killed one goes on from, end there as truncated:
    so the learner has them, too. Memory: the open episodes, and ended ones up to the size of a file.

    Arguments:
        env: what the expert plays in.
        root: the folder of the dataset.
        identity: of the training; equal ids of episodes mean equal episodes.
    """

    def __init__(self, env: TappedEnv, recording: ExpertRecording, root: Location, *, identity: str) -> None:
        self._env, self._recording, self._root, self._identity = env, recording, root, identity
        self.files: list[FileEntry] = []
        self.statistics = Statistics()
        self._ended: list[Episode] = []
        self._builder = self._new_builder()

    def _new_builder(self) -> EpisodeBuilder:
        begin = self.statistics.steps
        return EpisodeBuilder(
            self._env.num_envs,
            eps_id=lambda copy, k: eps_id(self._identity, "replay", begin, copy, k),
            spaces=(self._env.single_observation_space, self._env.single_action_space),
        )

    def after(self, rollout: int) -> None:
        """Make episodes of what was played, if that is much."""
        if self._env.kept >= STEPS_AT_A_TIME:
            self._build()

    def _build(self) -> None:
        if self._env.kept:
            self._ended += self._builder.build(self._env.take())
        if sum(episode.nbytes for episode in self._ended) >= self._recording.files.max_bytes_per_file:
            self._write()

    def _write(self) -> None:
        prefix = f"part-{self.statistics.steps:012d}"
        with EpisodeWriter(self._root, prefix, format=self._recording.format, config=self._recording.files) as writer:
            writer.write(self._ended)
        self.files += writer.files
        self.statistics = self.statistics.merge(writer.statistics)
        self._ended = []

    def save(self) -> dict[str, Tensor]:
        """Write what has ended; return what a state needs besides the files and statistics: the open episodes, encoded."""
        self._build()
        self._write()
        encoded = [np.frombuffer(encode(episode), np.uint8) for episode in self._builder.open]
        return {f"{number:06d}": torch.tensor(data) for number, data in enumerate(encoded)}

    def restore(self, files: list[FileEntry], statistics: Statistics, saved: dict[str, Tensor]) -> None:
        """Go on with what was recorded before; new episodes begin."""
        self.files, self.statistics = list(files), statistics
        self._end([decode(saved[name].numpy().tobytes()) for name in sorted(saved)])
        self._builder = self._new_builder()

    def close(self) -> None:
        """Write all that is left."""
        self._build()
        self._end(self._builder.open)

    def _end(self, episodes: Sequence[Episode]) -> None:
        self._ended += [replace(episode, truncated=True) for episode in episodes]
        self._write()
