"""Record while an expert learns: episodes that its policy plays beside, now and then, or all that it plays itself."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from torch import Tensor

from offline_core.data.datasets.commit import commit, prepared
from offline_core.data.datasets.manifest import FileEntry
from offline_core.data.datasets.result_cache import BegunResult
from offline_core.data.datasets.statistics import Statistics
from offline_core.data.datasets.writer import EpisodeWriter
from offline_core.data.environments.vector_env import spaces_of
from offline_core.data.episodes import Episode, decode, encode
from offline_core.data.store.location import Location
from offline_core.learning.experts.config import ExpertConfig, ExpertRecording
from offline_core.learning.play import PlayRecorder
from offline_core.policies.played_step import PlayedStep
from offline_core.policies.policy import Policy
from offline_core.policies.recording.episode_builder import EpisodeBuilder
from offline_core.policies.recording.player import EpisodesToPlay, eps_id, play
from offline_core.policies.rollouts import PlayedSteps
from offline_core.runtime.progress import progress

RECORDING = "recording"
STEPS_AT_A_TIME = 1024
"""Steps of each copy that are kept before episodes are made of them."""


class TrainingRecorder(PlayRecorder):
    """Writes what is recorded, in files of each recording's own: an expert that was killed goes on with those that are there.

    Arguments:
        root: the folder of the dataset.
    """

    def __init__(self, recording: ExpertRecording, root: Location) -> None:
        self._recording, self._root = recording, root
        self.files: list[FileEntry] = []
        self.statistics = Statistics()

    def close(self) -> None:
        """Record what is left."""

    def write(self, prefix: str, batches: Iterator[Sequence[Episode]]) -> None:
        """Write files whose names begin so."""
        with EpisodeWriter(self._root, prefix, format=self._recording.format, config=self._recording.files) as writer:
            for episodes in batches:
                writer.write(episodes)
        self.files += writer.files
        self.statistics = self.statistics.merge(writer.statistics)

    def save(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        files = [file.model_dump(mode="json") for file in self.files]
        return {"files": files, "statistics": self.statistics.model_dump(mode="json")}, {}

    def restore(self, saved: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self.files = [FileEntry.model_validate(file) for file in saved["files"]]
        self.statistics = Statistics.model_validate(saved["statistics"])


class PolicyRecorder(TrainingRecorder):
    """Plays the policy as it is now, without effect on its learning. `policy_id` of an episode is a hash of the weights.

    A training that is shorter than `every_rollouts` records its last policy.
    """

    def __init__(self, policy: Policy, config: ExpertConfig, recording: ExpertRecording, root: Location) -> None:
        super().__init__(recording, root)
        self._policy, self._config = policy, config

    def after(self, rollout: int) -> None:
        if rollout % self._recording.every_rollouts == 0:
            self._record(rollout)

    def close(self) -> None:
        if not self.files:
            self._record(0)

    def _record(self, number: int) -> None:
        """Play and write; another number plays other episodes."""
        with progress(self._recording.episodes, what="record", unit="episode") as bar:
            batches = play(
                self._policy,
                self._config.environment,
                EpisodesToPlay(round=number, recorder=0, episodes=self._recording.episodes),
                identity=weights_digest(self._policy),
                num_envs=self._config.num_envs,
                seed=self._config.seed,
                explore=True,
            )

            def counted() -> Iterator[Sequence[Episode]]:
                for episodes in batches:
                    yield episodes
                    bar.update(len(episodes))

            self.write(f"part-{number:07d}", counted())


class ReplayRecorder(TrainingRecorder):
    """Records each step of an expert once, in episodes in the order of their ends.

    Episodes that are open when the training ends, or in the state that a killed one goes on from, end there as truncated:
    so the learner has them, too. Memory: the open episodes, and ended ones up to the size of a file.

    Arguments:
        env: what the expert plays in.
        identity: of the training; equal ids of episodes mean equal episodes.
    """

    def __init__(self, env: VectorEnv, recording: ExpertRecording, root: Location, *, identity: str) -> None:
        super().__init__(recording, root)
        self._env, self._identity = env, identity
        self._played: list[PlayedStep] = []
        """Steps that no episode was built of yet."""
        self._infos: dict[str, Any] = {}
        """Infos before the first of these steps."""
        self._ended: list[Episode] = []
        self._builder = self._new_builder()

    def _new_builder(self) -> EpisodeBuilder:
        begin = self.statistics.steps
        return EpisodeBuilder(
            self._env.num_envs,
            eps_id=lambda copy, k: eps_id(self._identity, "replay", begin, copy, k),
            spaces=(self._env.single_observation_space, self._env.single_action_space),
        )

    def add(self, step: PlayedStep, infos: dict[str, Any]) -> None:
        if not self._played:
            self._infos = infos
        self._played.append(step)

    def after(self, rollout: int) -> None:
        """Make episodes of what was played, if that is much."""
        if len(self._played) >= STEPS_AT_A_TIME:
            self._build()

    def _build(self) -> None:
        if self._played:
            self._ended += self._builder.build(PlayedSteps.of(self._played, self._infos))
            self._played = []
        if sum(episode.nbytes for episode in self._ended) >= self._recording.files.max_bytes_per_file:
            self._write()

    def _write(self) -> None:
        self.write(f"part-{self.statistics.steps:012d}", iter([self._ended]))
        self._ended = []

    def save(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Write what has ended; return the open episodes, encoded, as tensors."""
        self._build()
        self._write()
        encoded = [np.frombuffer(encode(episode), np.uint8) for episode in self._builder.open]
        return super().save()[0], {f"{number:06d}": torch.tensor(data) for number, data in enumerate(encoded)}

    def restore(self, saved: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        super().restore(saved, tensors)
        self._end([decode(tensors[name].numpy().tobytes()) for name in sorted(tensors)])
        self._builder = self._new_builder()

    def close(self) -> None:
        self._build()
        self._end(self._builder.open)

    def _end(self, episodes: Sequence[Episode]) -> None:
        self._ended += [replace(episode, truncated=True) for episode in episodes]
        self._write()


@contextlib.contextmanager
def recorder_of(policy: Policy, env: VectorEnv, config: ExpertConfig, begun: BegunResult) -> Iterator[PlayRecorder]:
    """Record while the block runs, if `config` asks for it, and commit that as the next version of the recording.

    Arguments:
        env: what `policy` plays in.

    Raises:
        StorageError: it cannot be written.
    """
    if (recording := config.recording) is None:
        yield PlayRecorder()
        return
    with prepared(begun.folder.child(RECORDING).uri) as root:
        recorder: TrainingRecorder
        if recording.replay:
            recorder = ReplayRecorder(env, recording, root, identity=begun.identity)
        else:
            recorder = PolicyRecorder(policy, config, recording, root)
        yield recorder
        recorder.close()
        if not recorder.files:
            return
        spaces = spaces_of(config.environment)
        recorder.dataset = commit(
            root.uri,
            recorder.files,
            format=recording.format,
            operation=begun.operation,
            statistics=recorder.statistics,
            parents=list(begun.parents),
            environment=config.environment,
            observation_space=spaces[0],
            action_space=spaces[1],
        ).ref


def weights_digest(policy: Policy) -> str:
    """A hash of the policy's weights: 32 hex digits."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(policy.state_dict().items()):
        digest.update(name.encode() + tensor.numpy(force=True).tobytes())
    return digest.hexdigest()
