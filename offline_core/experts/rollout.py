"""What the copies of an environment did between two updates of the policy."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from torch import Tensor

from offline_core.episodes import columns, nested
from offline_core.episodes.nested import Nested
from offline_core.policies.policy import Policy, as_tensors
from offline_core.seeding import derive_seed


@dataclass(frozen=True, slots=True)
class Rollout:
    """T steps of N copies, as tensors."""

    observations: Nested
    """(T + 1, N, …): before each step, and after the last."""
    actions: Tensor
    """(T, N, *action shape)."""
    log_probs: Tensor
    """(T, N), float32, of the actions under the policy that chose them."""
    rewards: Tensor
    """(T, N), float32."""
    terminated: Tensor
    """(T, N), bool."""
    truncated: Tensor
    """(T, N), bool."""
    is_step: Tensor
    """(T, N), bool: False where a copy was only reset, which is nothing to learn from."""

    @property
    def flat_observations(self) -> Nested:
        """((T + 1)·N, …)."""
        return nested.map_leaves(lambda leaf: leaf.flatten(0, 1), self.observations)


class Player:
    """Plays a policy on and on; each rollout begins where the one before ended."""

    def __init__(self, env: VectorEnv, *, seed: int) -> None:
        self.env = env
        self.generator = torch.Generator().manual_seed(derive_seed(seed, "actions"))
        self.observations: Nested = env.reset(seed=derive_seed(seed, "environment"))[0]
        self.done = np.zeros(env.num_envs, bool)

    def play(self, policy: Policy, steps: int, *, max_env_steps: float = math.inf) -> Rollout:
        """`steps` steps of each copy, actions sampled from the policy; fewer if the next ones might exceed `max_env_steps`.

        All copies step together, and a copy that is only reset takes no step of the environment.
        """
        seen: list[Nested] = [nested.map_leaves(np.copy, self.observations)]
        played: list[tuple[np.ndarray, ...]] = []
        env_steps = 0
        while len(played) < steps and env_steps + self.env.num_envs <= max_env_steps:
            env_steps += int((~self.done).sum())
            chosen = policy.act(self.observations, explore=True, generator=self.generator)
            self.observations, rewards, terminated, truncated, _ = self.env.step(chosen.actions)
            seen.append(nested.map_leaves(np.copy, self.observations))  # the next step may be written into the same arrays
            played.append((chosen.actions, chosen.extras[columns.ACTION_LOGP], rewards, terminated, truncated, ~self.done))
            self.done = terminated | truncated
        actions, log_probs, rewards, terminated, truncated, is_step = (
            torch.from_numpy(np.stack(c)) for c in zip(*played, strict=True)
        )
        observations = as_tensors(nested.map_leaves(lambda *leaves: np.stack(leaves), *seen))
        return Rollout(observations, actions, log_probs, rewards.float(), terminated, truncated, is_step)
