"""Learns off-policy while it plays: from fresh steps, or from fresh and recorded ones."""

from __future__ import annotations

import contextlib

import torch
from gymnasium.vector import VectorEnv
from torch import Tensor

from offline_core.errors import ConfigError, LearningError
from offline_core.learning.algorithms.algorithm import evaluating
from offline_core.learning.algorithms.networks import Networks
from offline_core.learning.config import RewardsConfig, TrainingConfig
from offline_core.learning.learner import Learner
from offline_core.learning.online.config import OnlineConfig
from offline_core.learning.online.ring import StepRing
from offline_core.learning.returns import RETURNS_TO_GO
from offline_core.learning.steps import Batch, Steps
from offline_core.policies.policy import Policy, as_tensors
from offline_core.policies.rollouts.loop import EnvironmentLoop
from offline_core.runtime.seeding import derive_seed

GENERATOR = "online.generator"


class OnlineLearner:
    """Plays with exploration, keeps the last steps, and updates an algorithm on batches of them.

    The same arguments and calls give the same networks, to the bit, on the same machine and number of Torch threads.

    Arguments:
        algorithm: updated in place; its policy plays.
        env: made by `make_vector_env`; the caller closes it.
        seed: of start states, actions, batches, and what the algorithm draws.
        offline: recorded steps; `offline_share` of each batch are drawn from them (Ball et al. 2023, "Efficient Online
            Reinforcement Learning with Offline Data", take a half). With them, the observation filter stays as it is.
        rewards: what fresh rewards are learned as, with a number as scale; those of `offline` are so already.

    Raises:
        ConfigError: the policy remembers, does not fit the environment, or the memory for the steps is not there.
    """

    def __init__(
        self,
        algorithm: Networks,
        env: VectorEnv,
        config: OnlineConfig,
        *,
        seed: int,
        offline: Steps | None = None,
        offline_share: float = 0.0,
        rewards: RewardsConfig = RewardsConfig(),
    ) -> None:
        network, spaces = algorithm.policy.network, (env.single_observation_space, env.single_action_space)
        if network.remembers:
            raise ConfigError("Play is learned from in single steps: set network.frames to 1 and network.recurrent to None.")
        self.algorithm, self.env, self._config, self._seed = algorithm, env, config, seed
        self._learner = Learner(algorithm, TrainingConfig(seed=seed, optimizer=config.optimizer), total_steps=0)
        self._offline, self._offline_size = offline, 0
        if offline is not None:
            self._learner.load(offline)
            self._offline_size = round(offline_share * config.batch_size)
        self._takes_statistics = network.normalize_observations and offline is None
        self.ring = StepRing(
            env.num_envs,
            spaces,
            capacity_steps=config.capacity_steps,
            rewards=rewards,
            returns_gamma=algorithm.config.gamma if RETURNS_TO_GO in algorithm.batch_columns else None,
        )
        self._generator = torch.Generator().manual_seed(derive_seed(seed, "batches"))
        self._loop = self._begin()

    def _begin(self) -> EnvironmentLoop:
        loop = EnvironmentLoop(self.env, self.policy, seed=derive_seed(self._seed, "play", self.ring.written), explore=True)
        self.ring.begin(loop.observations)
        return loop

    @property
    def policy(self) -> Policy:
        """The policy that plays and learns."""
        return self.algorithm.policy

    @property
    def env_steps(self) -> int:
        """Environment steps so far, without resets."""
        return self.ring.steps

    @property
    def updates(self) -> int:
        """Updates so far."""
        return self._learner.updates

    @property
    def due_updates(self) -> int:
        """Updates that are due by the environment steps so far, and not made."""
        learned_from = self.env_steps - self._config.learning_starts_steps
        return max(0, int(learned_from * self._config.updates_per_step) - self.updates)

    def play(self, steps: int) -> None:
        """Play so many steps in each copy, and keep them."""
        with evaluating(self.policy) if self.policy.network.dropout else contextlib.nullcontext():
            for _ in range(steps):
                self._loop.uniform = self._offline is None and self.env_steps < self._config.learning_starts_steps
                step = next(self._loop)
                self.ring.add(step)
                if self._takes_statistics:
                    self.policy.encoder.update_statistics(as_tensors(step.next_observations))

    def learn(self) -> None:
        """Make the updates that are due.

        Raises:
            LearningError: a loss is NaN or infinite.
        """
        for _ in range(self.due_updates):
            if not self._learner.update_on(self._batch(), self._config.batch_size):
                raise LearningError(
                    f"Update {self.updates} of {self.algorithm.name}: the loss is NaN or infinite: "
                    f"{self.take_metrics()}. Try a lower learning_rate than {self._config.learning_rate:g}, and check that the "
                    "environment's observations and rewards are finite."
                )

    def _batch(self) -> Batch:
        algorithm, size = self.algorithm, self._config.batch_size - self._offline_size
        fresh = self.ring.draw(size, self._generator)
        batch = self.ring.batch(fresh, n_step=algorithm.config.n_step, gamma=algorithm.config.gamma)
        if self._offline is None or not self._offline_size:
            return batch
        rows = torch.randint(len(self._offline.rows), (self._offline_size,), generator=self._generator)
        recorded = self._offline.batch(self._offline.rows[rows], self._learner.spec)
        return {path: torch.cat([column, recorded[path]]) for path, column in batch.items() if path in recorded}

    def take_metrics(self) -> dict[str, float]:
        """Return the means of the algorithm's metrics over the updates since the last call."""
        return self._learner.take_metrics()

    def state(self) -> dict[str, Tensor]:
        """Return the tensors that the next update depends on, besides the steps in the ring."""
        return self._learner.state() | {GENERATOR: self._generator.get_state()}

    def restore(self, state: dict[str, Tensor], *, updates: int) -> None:
        """Restore what `state` returned, after the ring was: new episodes begin, for environments cannot be stored."""
        self._learner.restore(state, updates=updates, steps=updates * self._config.batch_size, within_window=False)
        self._generator.set_state(state[GENERATOR])
        self._loop = self._begin()
