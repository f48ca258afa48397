"""Record episodes of an expert while it learns, every so many rollouts."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator

from gymnasium.vector import VectorEnv
from torch import Tensor

from offline_core.data.datasets.commit import commit
from offline_core.data.datasets.dataset import DatasetRef
from offline_core.data.datasets.manifest import FileEntry, Operation, Parent, Statistics
from offline_core.data.datasets.writer import EpisodeWriter, WrittenFiles
from offline_core.data.environments.vector_env import spaces_of
from offline_core.data.store.location import Location
from offline_core.learning.experts.config import ExpertConfig, ExpertRecording
from offline_core.learning.experts.replay import ReplayRecorder
from offline_core.policies.policy import Policy
from offline_core.policies.recording.player import EpisodesToPlay, play
from offline_core.policies.rollouts.tapped_env import TappedEnv
from offline_core.runtime.progress import progress

RECORDING = "recording"


class TrainingRecorder:
    """Plays the policy as it is now, without effect on its learning. `policy_id` of an episode is a hash of the weights.

    Each recording has files of its own, so that an expert that was killed goes on with those that are there.
    """

    def __init__(self, policy: Policy, config: ExpertConfig, recording: ExpertRecording, root: Location) -> None:
        self._policy, self._config, self._recording, self._root = policy, config, recording, root
        self.files: list[FileEntry] = []
        self.statistics = Statistics()

    def after(self, rollout: int) -> None:
        """Record after the rollout of this number, if it is one of every `every_rollouts`."""
        if rollout % self._recording.every_rollouts == 0:
            self.record(rollout)

    def record(self, number: int) -> None:
        """Play and write; another number plays other episodes."""
        with (
            EpisodeWriter(
                self._root, f"part-{number:07d}", format=self._recording.format, config=self._recording.files
            ) as writer,
            progress(self._recording.episodes, what="record", unit="episode") as bar,
        ):
            for episodes in play(
                self._policy,
                self._config.environment,
                EpisodesToPlay(round=number, recorder=0, episodes=self._recording.episodes),
                identity=weights_digest(self._policy),
                num_envs=self._config.num_envs,
                seed=self._config.seed,
                explore=True,
            ):
                writer.write(episodes)
                bar.update(len(episodes))
        self.files += writer.files
        self.statistics = self.statistics.merge(writer.statistics)

    def save(self) -> dict[str, Tensor]:
        """Return what a state needs besides the files and statistics: nothing."""
        return {}

    def restore(self, files: list[FileEntry], statistics: Statistics, saved: dict[str, Tensor]) -> None:
        """Go on with what was recorded before."""
        self.files, self.statistics = list(files), statistics


@contextlib.contextmanager
def recorder_of(
    policy: Policy, env: VectorEnv, config: ExpertConfig, root: Location | None, identity: str
) -> Iterator[TrainingRecorder | ReplayRecorder | None]:
    """Record while the block runs, if `config` asks for it.

    A training that is shorter than `every_rollouts` records its last policy.

    Arguments:
        env: what `policy` plays in; tapped, for `replay`.
        root: of the recording's dataset.
        identity: of the training.

    Raises:
        StorageError: it cannot be written.
    """
    if (recording := config.recording) is None or root is None:
        yield None
        return
    if recording.replay:
        assert isinstance(env, TappedEnv)
        replay = ReplayRecorder(env, recording, root, identity=identity)
        yield replay
        replay.close()
        return
    recorder = TrainingRecorder(policy, config, recording, root)
    yield recorder
    if not recorder.files:
        recorder.record(0)


def commit_recorded(
    written: WrittenFiles, uri: str, config: ExpertConfig, operation: Operation, parents: list[Parent]
) -> DatasetRef:
    """Commit what was written while an expert learned as the next version of the dataset `uri`."""
    spaces = spaces_of(config.environment)
    return commit(
        uri,
        written.files,
        format=written.format,
        operation=operation,
        statistics=written.statistics,
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
