"""Play the episodes of one task with one vector environment, and write them from the same process to storage."""

from __future__ import annotations

import contextlib
import hashlib
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from gymnasium.vector import VectorEnv

from offline_core.data.datasets.manifest import FileEntry
from offline_core.data.datasets.statistics import Statistics
from offline_core.data.datasets.writer import EpisodeWriter
from offline_core.data.environments.vector_env import make_vector_env, shares
from offline_core.data.episodes import Episode, columns, nested
from offline_core.data.store.location import Location
from offline_core.policies.policy import Policy
from offline_core.policies.recording.config import RecordingConfig
from offline_core.policies.recording.episode_builder import EpisodeBuilder
from offline_core.policies.rollouts import EnvironmentLoop
from offline_core.runtime.config import EnvironmentSpec
from offline_core.runtime.seeding import derive_seed

STEPS_BYTES = 64 * 2**20
"""Memory for observations before the finished episodes among them are yielded."""
MAX_STEPS = 1024


@dataclass(frozen=True, slots=True)
class EpisodesToPlay:
    """A recorder's task: the episodes that it plays in one round."""

    round: int
    recorder: int
    episodes: int


def episodes_to_play(*, rounds: int, episodes: int, num_recorders: int) -> list[EpisodesToPlay]:
    """Return the tasks of all recorders, fixed before any episode is played. The episodes of a round are shared evenly."""
    episode_counts = shares(episodes, num_recorders).tolist()
    return [EpisodesToPlay(r, recorder, share) for r in range(rounds) for recorder, share in enumerate(episode_counts) if share]


@dataclass(frozen=True, slots=True)
class Played:
    """What shapes the episodes of a task, besides the policy."""

    num_envs: int
    seed: int
    explore: bool
    quota: np.ndarray
    """(num_envs,) the episodes of each copy of the environment."""
    what: str
    """All of it, in the ids of the episodes."""

    @classmethod
    def of(
        cls, environment: EnvironmentSpec, task: EpisodesToPlay, *, identity: str, num_envs: int, seed: int, explore: bool
    ) -> Played:
        """Arguments as of `play`."""
        num_envs = min(num_envs, task.episodes)
        seed = derive_seed(seed, "recording", task.round, task.recorder)
        # Part of the ids of recorded episodes: another text here is another episode. Fields that are newer than ids are left
        # out where they have no effect.
        where = environment.model_dump_json(exclude=None if environment.action_mask else {"action_mask"})
        work = f"Assignment(round={task.round}, recorder={task.recorder}, episodes={task.episodes})"
        what = f"{identity} {where} {work} {num_envs} {seed} {explore}"
        return cls(num_envs, seed, explore, shares(task.episodes, num_envs), what)

    def loop(self, env: VectorEnv, policy: Policy, *, with_extras: bool) -> EnvironmentLoop:
        """The steps of the task."""
        return EnvironmentLoop(env, policy, seed=self.seed, explore=self.explore, quota=self.quota, with_extras=with_extras)

    def eps_id(self, copy: int, k: int) -> str:
        """The id of the k-th episode of a copy."""
        return eps_id(self.what, copy, k)


def play(
    policy: Policy,
    environment: EnvironmentSpec,
    task: EpisodesToPlay,
    *,
    identity: str,
    num_envs: int,
    seed: int,
    explore: bool,
    keep_action_distribution: bool = True,
    deadline: float = math.inf,
) -> Iterator[list[Episode]]:
    """Yield the episodes of a task as they end: exactly as many as it names, each complete.

    The same arguments give the same episodes, wherever and whenever they are played. All that shapes an episode goes into
    its id, `identity` for the policy, so that equal ids mean equal episodes.

    Raises:
        TimeoutError: it is `deadline`, in seconds of `time.perf_counter`.
    """
    played = Played.of(environment, task, identity=identity, num_envs=num_envs, seed=seed, explore=explore)
    with contextlib.closing(make_vector_env(environment, played.num_envs)) as env:
        spaces = (env.single_observation_space, env.single_action_space)
        builder = EpisodeBuilder(played.num_envs, eps_id=played.eps_id, spaces=spaces)
        loop = played.loop(env, policy, with_extras=keep_action_distribution)
        step_bytes = max(1, sum(leaf.nbytes for leaf in nested.leaves(loop.observations)))
        steps = int(np.clip(STEPS_BYTES // step_bytes, 1, MAX_STEPS))
        while not loop.is_over:
            finished = builder.build(loop.take(steps, deadline=deadline))
            if time.perf_counter() > deadline:
                raise TimeoutError(f"{task} is not played by its deadline.")
            yield [replace(episode, custom_data={columns.POLICY_ID: identity}) for episode in finished]


def eps_id(*parts: str | int) -> str:
    """An episode's id, of all that shapes it: 32 hex digits, as RLlib's ids are, but the same in every run."""
    return hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=16).hexdigest()


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
