"""What a policy played, as an algorithm learns from it."""

from __future__ import annotations

import contextlib
from typing import Any

from gymnasium.vector import VectorEnv

from offline_core.data.environments.vector_env import make_vector_env
from offline_core.learning.algorithms.networks import Networks
from offline_core.learning.algorithms.ppo import PPO
from offline_core.learning.step_ring import StepRing
from offline_core.learning.steps import BatchSpec, Steps
from offline_core.policies.config import NetworkConfig
from offline_core.policies.policy import Policy
from offline_core.policies.rollouts import EnvironmentLoop
from offline_core.runtime.config import EnvironmentSpec

SPEC = BatchSpec(PPO.batch_columns)


def rolled_out(policy: Policy, env: VectorEnv, *rows: int, seed: int = 0) -> list[Steps]:
    """Rollouts of so many steps of each copy, one after the other."""
    loop = EnvironmentLoop(env, policy, seed=seed, explore=True)
    spaces = (env.single_observation_space, env.single_action_space)
    ring = StepRing(env.num_envs, spaces, capacity_steps=max(rows) * env.num_envs)
    ring.begin(loop.observations)
    rollouts = []
    for number in rows:
        for _ in range(number):
            ring.add(next(loop))
        rollouts.append(ring.last_rollout(number))
    return rollouts


def ppo_in(
    environment: str | EnvironmentSpec, *rows: int, copies: int = 8, network: NetworkConfig = NetworkConfig(), **parameters: Any
) -> tuple[Networks, list[Steps]]:
    """A new PPO, and rollouts of its policy."""
    spec = EnvironmentSpec(id=environment) if isinstance(environment, str) else environment
    with contextlib.closing(make_vector_env(spec, copies)) as env:
        networks = Networks(PPO(**parameters), env.single_observation_space, env.single_action_space, network)
        return networks, rolled_out(networks.policy, env, *rows)
