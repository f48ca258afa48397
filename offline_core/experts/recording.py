"""Record episodes of an expert while it learns, every so many rollouts."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator

from offline_core.datasets.commit import commit
from offline_core.datasets.dataset import DatasetRef
from offline_core.datasets.manifest import Operation, Parent
from offline_core.datasets.prepare import prepared
from offline_core.datasets.writer import EpisodeWriter
from offline_core.experts.config import ExpertConfig, ExpertRecording
from offline_core.policies.policy import Policy
from offline_core.recording.player import EpisodesToPlay, play
from offline_core.rollouts.environments import spaces_of
from offline_core.runtime.progress import progress
from offline_core.storage.location import Location

FOLDER = "recording"


class TrainingRecorder:
    """Plays the policy as it is now, without effect on its learning. `policy_id` of an episode is a hash of the weights."""

    def __init__(self, policy: Policy, config: ExpertConfig, recording: ExpertRecording, writer: EpisodeWriter) -> None:
        self._policy = policy
        self._config = config
        self._recording = recording
        self._writer = writer
        self.dataset: DatasetRef | None = None
        """The recording, once the training has ended."""

    def after(self, rollout: int) -> None:
        """Record after the rollout of this number, if it is one of every `every_rollouts`."""
        if rollout % self._recording.every_rollouts == 0:
            self.record(rollout)

    def record(self, number: int) -> None:
        """Play and write; another number plays other episodes."""
        with progress(self._recording.episodes, what="record", unit="episode") as bar:
            for episodes in play(
                self._policy,
                self._config.environment,
                EpisodesToPlay(round=number, recorder=0, episodes=self._recording.episodes),
                identity=weights_digest(self._policy),
                num_envs=self._config.num_envs,
                seed=self._config.seed,
                explore=True,
            ):
                self._writer.write(episodes)
                bar.update(len(episodes))


@contextlib.contextmanager
def recorder_of(
    policy: Policy, config: ExpertConfig, output: Location, operation: Operation, parents: list[Parent]
) -> Iterator[TrainingRecorder | None]:
    """Record while the block runs, if `config` asks for it; commit a dataset below the expert's folder when it succeeds.

    A training that is shorter than `every_rollouts` records its last policy.

    Raises:
        StorageError: it cannot be written.
    """
    if (recording := config.recording) is None:
        yield None
        return
    uri = output.child(FOLDER).uri
    with prepared(uri) as root:
        with EpisodeWriter(root, "part", format=recording.format, config=recording.files) as writer:
            recorder = TrainingRecorder(policy, config, recording, writer)
            yield recorder
            if not writer.metadata:
                recorder.record(0)
        spaces = spaces_of(config.environment)
        recorder.dataset = commit(
            uri,
            writer.files,
            format=recording.format,
            operation=operation,
            statistics=writer.statistics,
            parents=parents,
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
