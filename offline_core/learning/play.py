"""Learning from what the policy plays itself, and from a log by share."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from gymnasium.vector import VectorEnv
from torch import Tensor

from offline_core.data.datasets.dataset import DatasetRef
from offline_core.data.datasets.result_cache import BegunResult
from offline_core.data.episodes import columns, nested
from offline_core.data.store.location import Location
from offline_core.errors import ConfigError
from offline_core.learning.algorithms.algorithm import evaluating
from offline_core.learning.algorithms.networks import Networks
from offline_core.learning.config import RewardsConfig
from offline_core.learning.experience import Experience
from offline_core.learning.learner import Batched, Learner
from offline_core.learning.monitor import TrainingGoal, TrainingMonitor
from offline_core.learning.prelearner.mapper import ReadSoFar
from offline_core.learning.returns import RETURNS_TO_GO
from offline_core.learning.state import below
from offline_core.learning.step_ring import RewardScale, RingFiles, StepRing
from offline_core.learning.steps import Steps
from offline_core.learning.trainer import learn
from offline_core.learning.trainer_config import PlayConfig
from offline_core.policies.config import NetworkConfig
from offline_core.policies.played_step import PlayedStep
from offline_core.policies.policy import Policy, as_tensors
from offline_core.policies.quick import QuickPolicy
from offline_core.policies.rollouts import EnvironmentLoop
from offline_core.runtime.config import EnvironmentSpec
from offline_core.runtime.seeding import derive_seed

_GENERATOR, _RECORDED, _SCALE = "play.generator", "play.recorded.", "play.reward_scale"


class PlayRecorder:
    """Records what is played, or the policy as it is now and then; this one nothing."""

    dataset: DatasetRef | None = None
    """What was recorded, once it is committed."""

    def add(self, step: PlayedStep, infos: dict[str, Any]) -> None:
        """Take a step that was played, and the infos before it."""

    def after(self, rollout: int) -> None:
        """Record after the rollout of this number."""

    def save(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return what was recorded, as JSON, and tensors to go on with."""
        return {}, {}

    def restore(self, saved: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Go on from what `save` returned; new episodes begin."""


class Play(Experience):
    """Rollouts of the learning policy, and what is learned from them.

    An algorithm learns from each rollout by itself, as often as it says, or from batches that are drawn from the last
    steps. The same arguments and calls give the same networks, to the bit, on the same machine and number of Torch threads.

    Arguments:
        networks: whose policy plays.
        env: made by `make_vector_env`; the caller closes it.
        states: the folder that played steps are stored in, beside the states of the run.
        log: recorded steps; `log_share` of each batch are drawn from them (Ball et al. 2023, "Efficient Online Reinforcement
            Learning with Offline Data", take a half). With them, the observation filter stays as it is.
        rewards: what played rewards are learned as, with a number as scale; those of `log` are so already.

    Raises:
        ConfigError: The policy remembers, or the memory for the steps is not there.
    """

    unit = "step"
    repeats = False

    def __init__(
        self,
        networks: Networks,
        env: VectorEnv,
        config: PlayConfig,
        *,
        states: Location,
        log: Steps | None = None,
        log_share: float = 0.0,
        rewards: RewardsConfig = RewardsConfig(),
    ) -> None:
        policy, algorithm = networks.policy, networks.algorithm
        check_single_steps(policy.network)
        super().__init__(config.total_steps, ReadSoFar())
        self._networks, self._env, self.config = networks, env, config
        self._epochs = algorithm.epochs_per_rollout
        self._log, self._log_size = log, 0 if log is None else round(log_share * config.optimizer.batch_size)
        self.recorder = PlayRecorder()
        """Sees each step and each rollout."""
        drawn = self._epochs is None
        self.ring = StepRing(
            env.num_envs,
            (env.single_observation_space, env.single_action_space),
            capacity_steps=config.replay.capacity_steps if drawn else config.rollout_steps * env.num_envs,
            rewards=rewards,
            returns_gamma=algorithm.gamma if RETURNS_TO_GO in algorithm.batch_columns else None,
        )
        self._files = RingFiles(states, self.ring) if drawn else None
        gamma = algorithm.reward_scale_gamma
        self._scale = None if gamma is None else RewardScale(env.num_envs, gamma=gamma)
        self._generator = torch.Generator().manual_seed(derive_seed(config.seed, "batches"))
        self._rollouts = self._rollout_rows = 0
        self._unseen: Steps | None = None
        """The last rollout, which is not in the observation filter yet: its evaluation wants the filter it was learned with."""
        self._loop = self._begin_episodes()

    def _begin_episodes(self) -> EnvironmentLoop:
        seed = derive_seed(self.config.seed, "play", self.ring.written)
        policy = self._networks.policy
        player: Policy | QuickPolicy = policy
        if self._epochs is not None and QuickPolicy.plays(policy, self._env.num_envs):
            player = QuickPolicy(policy, seed=derive_seed(seed, "actions"))
        loop = EnvironmentLoop(self._env, player, seed=seed, explore=True)
        self.ring.begin(loop.observations)
        return loop

    @property
    def env_steps(self) -> int:
        """Environment steps so far, without resets."""
        return self.ring.steps

    @property
    def counts(self) -> dict[str, int]:
        return {"env_steps": self.env_steps}

    @property
    def is_over(self) -> bool:
        """All steps are played: one more of each copy would be too many."""
        return self.env_steps + self._env.num_envs > self.total

    def batches(self, learner: Learner) -> Iterator[Batched | None]:
        while not self.is_over:
            begin = time.perf_counter()
            self._play()
            self.seconds.wait += time.perf_counter() - begin
            self.advanced()
            yield from self._drawn(learner) if self._epochs is None else self._of_rollout(learner, self._epochs)
            self.recorder.after(self._rollouts)
            if self._rollouts % self.config.rollouts_per_iteration == 0 or self.is_over:
                yield None

    def _play(self) -> None:
        """Play one rollout, and keep its steps."""
        before = self.ring.written
        policy, starts = self._networks.policy, self.config.replay.learning_starts_steps
        normalizes = policy.network.normalize_observations
        self._take_statistics()
        with evaluating(policy) if policy.network.dropout else contextlib.nullcontext():
            for _ in range(self.config.rollout_steps):
                if self.is_over:
                    break
                self._loop.uniform = self._epochs is None and self._log is None and self.env_steps < starts
                infos, step = self._loop.infos, next(self._loop)
                self.ring.add(step)
                self.recorder.add(step, infos)
                if normalizes and self._epochs is None and self._log is None:
                    policy.encoder.update_statistics(as_tensors(step.next_observations))
        self._rollouts += 1
        self._rollout_rows = self.ring.written - before

    def _take_statistics(self) -> None:
        policy, steps = self._networks.policy, self._unseen
        if steps is not None and policy.network.normalize_observations:
            policy.encoder.update_statistics(nested.unflatten(steps.columns, columns.OBS, policy.observation_space))
        self._unseen = None

    def _of_rollout(self, learner: Learner, epochs: int) -> Iterator[Batched]:
        """Yield all steps of the last rollout in another order in each epoch, in equal parts of a batch at most."""
        steps = self.ring.last_rollout(self._rollout_rows, scale=self._scale)
        self._unseen = steps
        learner.load(steps)
        parts = math.ceil(len(steps) / self.config.optimizer.batch_size)
        for epoch in range(epochs):
            batches = [batch for _, batch in learner.batches(epoch, self._rollouts, size=math.ceil(len(steps) / parts))]
            sizes = [batch.steps for batch in batches]
            ordered = steps.batch(torch.cat([batch.indices for batch in batches]), learner.spec)  # once, for all are small
            split = {path: column.split(sizes) for path, column in ordered.items()}
            for number, batch in enumerate(batches):
                yield batch._replace(columns={path: columns[number] for path, columns in split.items()})

    def _drawn(self, learner: Learner) -> Iterator[Batched]:
        """Yield as many batches of the last steps, and of the log, as are due."""
        replay, size = self.config.replay, self.config.optimizer.batch_size
        algorithm = self._networks.algorithm
        learned_from = self.env_steps - replay.learning_starts_steps
        while learner.updates < int(learned_from * replay.updates_per_step):
            played = self.ring.draw(size - self._log_size, self._generator)
            batch = self.ring.batch(played, n_step=algorithm.n_step, gamma=algorithm.gamma)
            if self._log is not None and self._log_size:
                rows = torch.randint(len(self._log.rows), (self._log_size,), generator=self._generator)
                recorded = self._log.batch(self._log.rows[rows], learner.spec)
                batch = {path: torch.cat([column, recorded[path]]) for path, column in batch.items() if path in recorded}
            yield Batched(played, size, columns=batch)

    def save(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        self._take_statistics()
        recorded, tensors = self.recorder.save()
        saved = {
            "env_steps": self.env_steps,
            "rollouts": self._rollouts,
            "written": self.ring.written,
            "files": [] if self._files is None else [file.model_dump() for file in self._files.save()],
            "recorded": recorded,
        }
        scale = {} if self._scale is None else {_SCALE: self._scale.state()}
        recording = {f"{_RECORDED}{name}": tensor for name, tensor in tensors.items()}
        return saved, {_GENERATOR: self._generator.get_state(), **scale, **recording}

    def restore(self, saved: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Go on from what `save` returned, with new episodes: environments cannot be stored."""
        if self._files is not None:
            self._files.load(saved["files"])
        self.ring.written, self.ring.steps, self._rollouts = saved["written"], saved["env_steps"], saved["rollouts"]
        if self._scale is not None:
            self._scale.restore(tensors[_SCALE])
        self._generator.set_state(tensors[_GENERATOR])
        self.recorder.restore(saved["recorded"], below(tensors, _RECORDED))
        self._loop = self._begin_episodes()


def learn_from_play(
    learner: Learner,
    play: Play,
    begun: BegunResult,
    environment: EnvironmentSpec,
    *,
    target_return: float | None,
    begins_as: Callable[[], None] | None,
    **more: Any,
) -> tuple[TrainingMonitor, dict[str, Any]]:
    """Learn to the end of a run; return its monitor, and the fields of a `PlayedResult`.

    Arguments:
        environment: that is played in, also to evaluate.
        begins_as: see `learn`.
        more: fields of `TrainingGoal`.
    """
    goal = TrainingGoal(
        begun.folder,
        begun.operation,
        list(begun.parents),
        environment=environment,
        played_in=environment,
        evaluation=play.config.evaluation,
        target_return=target_return,
        seed=play.config.seed,
        **more,
    )
    monitor = learn(learner, play, goal, begins_as=begins_as)
    assert monitor is not None
    reached = monitor.reached_target or target_return is None
    return monitor, monitor.learned() | {"reached_target": reached, "env_steps": play.env_steps}


def check_single_steps(network: NetworkConfig) -> None:
    """Check that a policy with this network can learn from play.

    Raises:
        ConfigError: It remembers earlier steps.
    """
    if network.remembers:
        raise ConfigError(
            "Play is learned from in single steps: set network.frames to 1 and network.recurrent to None, or begin with "
            "another policy than one of dt."
        )


def learned_steps(config: PlayConfig, epochs: int | None) -> int:
    """Return the steps that a training from play learns from, each as often as it is, at most.

    Arguments:
        epochs: `Algorithm.epochs_per_rollout`.
    """
    if epochs is not None:
        return config.total_steps * epochs
    replay = config.replay
    updates = (config.total_steps - replay.learning_starts_steps) * replay.updates_per_step
    return max(1, int(updates)) * config.optimizer.batch_size
