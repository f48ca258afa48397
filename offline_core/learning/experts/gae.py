"""Generalised advantage estimation (Schulman et al. 2016, arXiv 1506.02438)."""

from __future__ import annotations

import torch
from torch import Tensor


@torch.no_grad()
def advantages(
    rewards: Tensor, values: Tensor, *, terminated: Tensor, truncated: Tensor, gamma: float, gae_lambda: float
) -> Tensor:
    """How much better each action was than the value function expected: (T, N), for T steps of N copies.

    After a termination the value is zero. After a truncation, or the last step of an open episode, it is the value of the
    last observation. Advantages never cross the end of an episode. Steps that only reset a copy (gymnasium's NEXT_STEP
    autoreset) have meaningless advantages, and do not change those of other steps.

    Arguments:
        rewards: (T, N).
        values: (T + 1, N), of the observation before each step and after the last; after a step that ended an episode,
            of the observation it ended with.
        terminated, truncated: (T, N), bool.
    """
    deltas = rewards + gamma * values[1:] * ~terminated - values[:-1]
    decays = gamma * gae_lambda * ~(terminated | truncated)
    result = torch.empty_like(deltas)
    running = torch.zeros_like(deltas[0])
    for t in reversed(range(len(deltas))):
        running = torch.addcmul(deltas[t], decays[t], running, out=result[t])
    return result
