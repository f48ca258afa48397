"""PPO as an expert's learner: each rollout is learned from and forgotten."""

from __future__ import annotations

from gymnasium.vector import VectorEnv
from torch import Tensor

from offline_core.learning.experts.config import ExpertConfig
from offline_core.learning.experts.ppo import PPO
from offline_core.learning.experts.reward_scale import RewardScale
from offline_core.learning.experts.rollout import Rollout
from offline_core.learning.experts.start import first_policy, fit_values
from offline_core.learning.optimizer import optimizer_tensors, restore_optimizer
from offline_core.policies.manifest import PolicyManifest
from offline_core.policies.policy import Policy
from offline_core.policies.quick import QuickPolicy
from offline_core.policies.rollouts.loop import EnvironmentLoop
from offline_core.runtime.seeding import derive_seed

_POLICY, _GENERATOR = "policy.", "minibatches.generator"


class OnPolicyLearner:
    """Plays `rollout_steps` steps in each copy, then updates the policy by PPO.

    If the value function of `initial_policy` is new, the first rollout fits only that.

    Arguments:
        initial: the manifest of `initial_policy`, if it was read before.

    Raises:
        CheckpointError: `initial_policy` is not a checkpoint.
        ConfigError: it does not fit the environment or `network`, or PPO cannot train such a policy.
    """

    ring = None

    def __init__(self, config: ExpertConfig, env: VectorEnv, initial: PolicyManifest | None = None) -> None:
        self._config, self._env = config, env
        spaces = (env.single_observation_space, env.single_action_space)
        self.policy, self._fresh_values = first_policy(config, spaces, initial)
        self._ppo = PPO(self.policy, config.ppo, seed=derive_seed(config.seed, "minibatches"))
        self._rewards = RewardScale(env.num_envs, gamma=config.ppo.gamma) if config.ppo.normalize_rewards else None
        self.env_steps = 0
        self._losses: dict[str, float] = {}
        self._unseen: Rollout | None = None
        """The last rollout, which is not in the observation filter yet: its evaluation wants the filter it was learned with."""
        self._loop = self._begin(config.seed)

    def _begin(self, seed: int) -> EnvironmentLoop:
        player: Policy | QuickPolicy = self.policy
        if QuickPolicy.plays(self.policy, self._env.num_envs):
            player = QuickPolicy(self.policy, seed=derive_seed(seed, "actions"))
        return EnvironmentLoop(self._env, player, seed=seed, explore=True)

    @property
    def updates(self) -> int:
        """Updates so far, one a rollout."""
        return self._ppo.updates

    def advance(self, max_env_steps: int) -> None:
        """Play one rollout of so many environment steps at most, and learn from it.

        Raises:
            LearningError: a loss is NaN or infinite.
        """
        self._take_statistics()
        played = Rollout.of(self._loop.take(self._config.rollout_steps, max_env_steps=max_env_steps))
        rollout = played if self._rewards is None else self._rewards.scaled(played)
        if self._fresh_values and not self.env_steps:
            self._losses = fit_values(self.policy, rollout, self._config)
        else:
            self._losses = self._ppo.update(rollout, done=self.env_steps / self._config.total_steps)
        self.env_steps += int(rollout.is_step.sum())
        self._unseen = rollout

    def _take_statistics(self) -> None:
        if self._unseen is not None and self.policy.network.normalize_observations:
            self.policy.encoder.update_statistics(self._unseen.flat_observations)
        self._unseen = None

    def take_metrics(self) -> dict[str, float]:
        """Return the losses of the last rollout."""
        return self._losses

    def state(self) -> dict[str, Tensor]:
        """Return the tensors that the next rollout depends on."""
        self._take_statistics()
        weights = {f"{_POLICY}{name}": tensor.detach().clone() for name, tensor in self.policy.state_dict().items()}
        scale = {} if self._rewards is None else self._rewards.state()
        return weights | scale | optimizer_tensors(self._ppo.optimizer) | {_GENERATOR: self._ppo.generator.get_state()}

    def restore(self, state: dict[str, Tensor], *, env_steps: int, updates: int) -> None:
        """Go on from what `state` returned, with new episodes."""
        weights = {name.removeprefix(_POLICY): tensor for name, tensor in state.items() if name.startswith(_POLICY)}
        self.policy.load_state_dict(weights)
        restore_optimizer(self._ppo.optimizer, state)
        if self._rewards is not None:
            self._rewards.restore(state)
        self._ppo.generator.set_state(state[_GENERATOR])
        self.env_steps, self._ppo.updates = env_steps, updates
        self._loop = self._begin(derive_seed(self._config.seed, "resumed", env_steps))
