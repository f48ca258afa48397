"""Episodes of an expert while it learns, recorded every so many rollouts."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator

from offline_core.environments import spaces_of
from offline_core.experts.config import ExpertConfig, ExpertRecording
from offline_core.policies.policy import Policy
from offline_core.progress import progress
from offline_core.recording.player import Assignment, play
from offline_core.storage.committing import commit
from offline_core.storage.dataset import DatasetRef
from offline_core.storage.location import Location
from offline_core.storage.manifest import Operation, Parent
from offline_core.storage.preparing import prepared
from offline_core.storage.writer import EpisodeWriter

FOLDER = "recording"


class TrainingRecorder:
    """Has the policy play as it is, which has no say in how it learns. `policy_id` of an episode is a hash of its weights."""

    def __init__(self, policy: Policy, config: ExpertConfig, recording: ExpertRecording, writer: EpisodeWriter) -> None:
        self._policy = policy
        self._config = config
        self._recording = recording
        self._writer = writer
        self.dataset: DatasetRef | None = None
        """All that was recorded, once the training is over."""

    def after(self, rollout: int) -> None:
        """Records if it is time to after the rollout of this number."""
        if rollout % self._recording.every_rollouts == 0:
            self.record(rollout)

    def record(self, number: int) -> None:
        """Plays and writes; another number plays other episodes."""
        with progress(self._recording.episodes, what="record", unit="episode") as bar:
            for episodes in play(
                self._policy,
                self._config.environment,
                Assignment(round=number, recorder=0, episodes=self._recording.episodes),
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
    """Records while the block runs, if `config` says so; a block that ends well commits a dataset below the expert's folder.

    A training that ended before it was time to records its last policy.

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
    """32 hex digits that stand for what the policy does."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(policy.state_dict().items()):
        digest.update(name.encode() + tensor.numpy(force=True).tobytes())
    return digest.hexdigest()
