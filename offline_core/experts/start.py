"""What an expert begins as: random weights, or those of a policy that is there already."""

from __future__ import annotations

import torch

from offline_core.environments import Spaces
from offline_core.episodes import nested
from offline_core.errors import ConfigError
from offline_core.experts.config import ExpertConfig
from offline_core.experts.ppo import make_batch
from offline_core.experts.rollout import Rollout
from offline_core.policies.checkpoint import load_policy
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy
from offline_core.seeding import derive_seed


def first_policy(config: ExpertConfig, spaces: Spaces) -> tuple[Policy, bool]:
    """The policy to improve, and whether its value function knows nothing of what the policy can do.

    A policy that is gone on with keeps its spaces, whose bounds are the units of its actions, and its network.

    Raises:
        CheckpointError: `initial_policy` is none.
        ConfigError: it does not fit the environment or `network`, or PPO cannot train such a policy here.
    """
    seed = derive_seed(config.seed, "weights")
    if config.initial_policy is None:
        policy, fresh = Policy(*spaces, config.network, value_function=True, seed=seed), False
    else:
        policy = load_policy(config.initial_policy)
        policy.check_spaces(config.environment.id, spaces)
        if config.network not in (policy.network, NetworkConfig()):
            raise ConfigError(
                f"The network is that of initial_policy {config.initial_policy}, {policy.network!r}: leave 'network' as it is."
            )
        fresh = not policy.value_function
        if fresh:
            policy = _with_value_function(policy, seed)
    if policy.network.remembers:
        raise ConfigError("PPO learns from single steps here: network.frames has to be 1, and network.recurrent None.")
    if policy.action_space.shape is None:
        raise ConfigError(f"PPO cannot train a policy whose actions are made of several yet, found {policy.action_space}.")
    return policy.train(), fresh


def fit_values(policy: Policy, rollout: Rollout, config: ExpertConfig) -> dict[str, float]:
    """Fits only the value function to one rollout, as often as PPO would; what the policy does stays as it is.

    The advantages that a fresh value function makes up are noise that one update of PPO would unlearn half a clone for.
    """
    batch = make_batch(policy, rollout, gamma=config.ppo.gamma, gae_lambda=config.ppo.gae_lambda)
    ours = [parameter for name, parameter in policy.named_parameters() if name.startswith("value")]
    optimizer = torch.optim.Adam(ours, lr=config.ppo.learning_rate, eps=1e-5)
    generator = torch.Generator().manual_seed(derive_seed(config.seed, "values"))
    minibatches = -(-len(batch.returns) // config.ppo.minibatch_size)
    for _ in range(config.ppo.num_epochs):
        for index in torch.randperm(len(batch.returns), generator=generator).chunk(minibatches):
            observations = nested.map_leaves(lambda leaf, index=index: leaf[index], batch.observations)
            loss = (policy.values(observations) - batch.returns[index]).square().mean()
            policy.zero_grad()
            loss.backward()
            optimizer.step()
    return {"value_loss": loss.item()}


def _with_value_function(policy: Policy, seed: int) -> Policy:
    """The same policy with a value function of random weights beside it."""
    both = Policy(policy.observation_space, policy.action_space, policy.network, value_function=True, seed=seed)
    both.load_state_dict(both.state_dict() | policy.state_dict())
    return both
