"""A policy at play as PPO needs it."""

from __future__ import annotations

from gymnasium.vector import VectorEnv

from offline_core.policies.policy import Policy
from offline_core.policies.rollouts.loop import EnvironmentLoop


def loop_of(env: VectorEnv, policy: Policy, *, seed: int = 0) -> EnvironmentLoop:
    return EnvironmentLoop(env, policy, seed=seed, explore=True)
