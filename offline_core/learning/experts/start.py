"""The first policy of an expert: random weights, or those of `initial_policy`."""

from __future__ import annotations

import torch

from offline_core.data.environments.vector_env import Spaces
from offline_core.errors import ConfigError
from offline_core.learning.experts.config import ExpertConfig
from offline_core.learning.experts.ppo import make_batch, minibatches
from offline_core.learning.experts.rollout import Rollout
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.config import NetworkConfig
from offline_core.policies.initial import begin_as, check_network
from offline_core.policies.manifest import PolicyManifest
from offline_core.policies.policy import Policy
from offline_core.runtime.adam import Adam
from offline_core.runtime.seeding import derive_seed


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
