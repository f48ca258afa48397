"""PPO as an expert's learner: each rollout is learned from and forgotten."""

from __future__ import annotations

from dataclasses import replace

import torch
from gymnasium.vector import VectorEnv
from torch import Tensor

from offline_core.data.environments.vector_env import Spaces
from offline_core.errors import ConfigError
from offline_core.learning.experts.config import ExpertConfig
from offline_core.learning.experts.ppo import PPO, make_batch, minibatches
from offline_core.learning.experts.rollout import Rollout
from offline_core.learning.optimizer import optimizer_tensors, restore_optimizer
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.config import NetworkConfig
from offline_core.policies.initial import begin_as, check_network
from offline_core.policies.manifest import PolicyManifest
from offline_core.policies.policy import Policy
from offline_core.policies.quick import QuickPolicy
from offline_core.policies.rollouts.loop import EnvironmentLoop
from offline_core.runtime.adam import Adam
from offline_core.runtime.seeding import derive_seed

_POLICY, _GENERATOR = "policy.", "minibatches.generator"

CLIP = 10.0
"""Largest size of a scaled reward."""
_PREFIX = "rewards."


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


class RewardScale:
    """Divides rewards by the running standard deviation of the discounted returns so far.

    As gymnasium's NormalizeReward and Stable-Baselines3 (Engstrom et al. 2020, "Implementation Matters in Deep Policy
    Gradients"), but a rollout at a time: its returns count before its rewards are divided. Then they are clipped.
    They are for learning alone: what is recorded has the environment's rewards.

    Arguments:
        num_envs: copies of the environment.
        gamma: of the returns.
    """

    def __init__(self, num_envs: int, *, gamma: float) -> None:
        self._gamma = gamma
        self.returns = torch.zeros(num_envs, dtype=torch.float64)
        """(N,), of the open episode of each copy so far."""
        self.count, self.mean, self.variance = 0, 0.0, 1.0
        """Of all returns, one a step."""

    def scaled(self, rollout: Rollout) -> Rollout:
        """Return the same steps with scaled rewards, once they are counted."""
        ends = rollout.terminated | rollout.truncated
        returns = torch.empty(rollout.rewards.shape, dtype=torch.float64)
        for t, rewards in enumerate(rollout.rewards):
            returns[t] = self.returns.mul_(self._gamma).add_(rewards)
            self.returns.masked_fill_(ends[t], 0.0)
        self._count(returns[rollout.is_step])
        scaled = rollout.rewards / (self.variance + 1e-8) ** 0.5
        return replace(rollout, rewards=scaled.clamp(-CLIP, CLIP))

    def _count(self, values: Tensor) -> None:
        """Chan et al. 1979."""
        variance, mean = (float(moment) for moment in torch.var_mean(values, correction=0))
        total, delta = self.count + len(values), mean - self.mean
        squares = self.variance * self.count + variance * len(values) + delta**2 * self.count * len(values) / total
        self.mean += delta * len(values) / total
        self.count, self.variance = total, squares / total

    def state(self) -> dict[str, Tensor]:
        """Return the counts, without the open episodes."""
        return {f"{_PREFIX}moments": torch.tensor([self.count, self.mean, self.variance], dtype=torch.float64)}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from what `state` returned, with new episodes."""
        count, self.mean, self.variance = state[f"{_PREFIX}moments"].tolist()
        self.count = int(count)
        self.returns.zero_()


def first_policy(config: ExpertConfig, spaces: Spaces, initial: PolicyManifest | None = None) -> tuple[Policy, bool]:
    """The policy to improve, and whether its value function is new while the policy is not.

    `initial_policy` keeps its network and its spaces, whose bounds are the units of its actions.

    Arguments:
        initial: the manifest of `initial_policy`, if it was read before.

    Raises:
        CheckpointError: `initial_policy` is not a checkpoint, or not that of the manifest any more.
        ConfigError: it does not fit the environment or `network`, or PPO cannot train such a policy.
    """
    seed = derive_seed(config.seed, "weights")
    if config.initial_policy is None:
        policy, fresh = Policy(*spaces, config.network, value_function=True, seed=seed), False
    else:
        policy = load_policy(config.initial_policy, initial)
        policy.check_spaces(config.environment.id, spaces)
        if config.network != NetworkConfig():
            check_network(config.initial_policy, policy.network, config.network)
        fresh = not policy.value_function
    if policy.network.remembers:
        raise ConfigError(
            "PPO learns from single steps: set network.frames to 1 and network.recurrent to None, or begin with another policy "
            "than one of dt."
        )
    if policy.action_space.shape is None:
        raise ConfigError(f"PPO cannot train a policy with Dict or Tuple actions, found {policy.action_space}.")
    return (_with_value_function(policy, seed) if fresh else policy).train(), fresh


def fit_values(policy: Policy, rollout: Rollout, config: ExpertConfig) -> dict[str, float]:
    """Fit only the value function to one rollout, with as many epochs as PPO; the policy's actions stay the same.

    The advantages of a new value function are noise, and one update of PPO with them would undo much of a clone.
    """
    batch = make_batch(policy, rollout, gamma=config.ppo.gamma, gae_lambda=config.ppo.gae_lambda)
    parameters = [parameter for name, parameter in policy.named_parameters() if name.startswith("value")]
    optimizer = Adam(parameters, lr=config.ppo.learning_rate, eps=1e-5)
    generator = torch.Generator().manual_seed(derive_seed(config.seed, "values"))
    for part in minibatches(batch, config.ppo, generator):
        loss = (policy.values(part.observations) - part.returns).square().mean()
        policy.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
    return {"value_loss": loss.item()}


def _with_value_function(policy: Policy, seed: int) -> Policy:
    """The same policy with a new value function of random weights."""
    both = Policy(policy.observation_space, policy.action_space, policy.network, value_function=True, seed=seed)
    begin_as(both, policy)
    return both
