"""What follows a step in its episode, summed up for all steps at once: returns, λ-returns, n steps.

All functions are about the R rows of `Steps`: T rows an episode, and where they look ahead, one for the observation after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from offline_core.data.episodes import columns
from offline_core.runtime.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

    from offline_core.learning.steps import Steps

N_STEP_REWARDS, N_STEP_DISCOUNTS = "n_step_rewards", "n_step_discounts"
"""(R,) float32: the discounted rewards of the next m steps, and what the value after them counts: γ^m, 0 once terminated."""
RETURNS_TO_GO = "returns_to_go"
"""(R,) float32: the discounted rewards to the end of the episode."""
NEW_ACTIONS, HAS_NEW_ACTIONS = "new_actions", "has_new_actions"
"""(R, *action shape) and (R,) bool: the recorded action at `new_obs`, and whether there is one: an episode's end has none."""


def steps_left(steps: Steps) -> Tensor:
    """(R,) int64: the steps from this one to the last of its episode, which counts; 0 in a row after that."""
    return steps.last_step[steps.episode] + 1 - torch.arange(len(steps.episode), device=steps.episode.device)


def discounted_sums(values: Tensor, left: Tensor, factor: float) -> Tensor:
    """y[t] = x[t] + factor · y[t + 1] inside each episode, 0 in the row after its last step: (R,) float64.

    Each pass doubles how far the sums reach (Hillis & Steele 1986, "Data parallel algorithms"): log2 of the longest
    episode, instead of a pass per step.

    Arguments:
        values: (R,).
        left: (R,), see `steps_left`.
        factor: 0 to 1.
    """
    sums = values.double().masked_fill(left == 0, 0.0)
    reach, longest = 1, int(left.max())
    while reach < longest and factor**reach > 0:
        sums[:-reach] += factor**reach * sums[reach:].masked_fill(left[:-reach] <= reach, 0.0)
        reach *= 2
    return sums


def n_step_sums(values: Tensor, left: Tensor, factor: float, n: int) -> Tensor:
    """Σ factor^k · x[t + k] over the next n steps, or those left of the episode if they are fewer: (R,) float64."""
    steps = values.double().masked_fill(left == 0, 0.0)
    sums = steps.clone()
    for k in range(1, min(n, int(left.max()))):
        sums[:-k] += factor**k * steps[k:].masked_fill(left[:-k] <= k, 0.0)
    return sums


def add_n_step_columns(steps: Steps, *, n: int, gamma: float) -> None:
    """Adds `N_STEP_REWARDS` and `N_STEP_DISCOUNTS`, and makes `new_obs` the observation m = min(n, steps left) steps later."""
    left = steps_left(steps)
    steps.ahead = left.clamp(max=n)
    ends = (torch.arange(len(left), device=left.device) + steps.ahead - 1).clamp(min=0)
    is_open = ~steps.columns[columns.TERMINATEDS][ends]
    steps.columns[N_STEP_REWARDS] = n_step_sums(steps.columns[columns.REWARDS], left, gamma, n).float()
    steps.columns[N_STEP_DISCOUNTS] = (gamma ** steps.ahead.double() * is_open).float()


def value_targets(
    rewards: Tensor, values: Tensor, left: Tensor, *, terminated: Tensor, gamma: float, gae_lambda: float
) -> Tensor:
    """What the value function should say: GAE's advantage plus the value (Schulman et al. 2016, arXiv 1506.02438).

    That is the λ-return G[t] = r[t] + γ · ((1 - λ) · V[t + 1] + λ · G[t + 1]), where G after the last step of an episode is
    0 if it was terminated, and the value of the last observation if it was truncated or goes on elsewhere. With λ = 1
    no other values matter.

    Arguments:
        rewards: (R,).
        values: (R,), of the rows' observations; those after an episode's last step too.
        left: (R,), see `steps_left`.
        terminated: (R,) bool, True in an episode's last step if it ended in a terminal state.
        gamma, gae_lambda: discount, and how much the rewards that came are trusted over the values.

    Returns:
        (R,) float64.
    """
    following = values.double().roll(-1) * (1.0 - gae_lambda * (left != 1).double())
    return discounted_sums(rewards + gamma * following.masked_fill(terminated, 0.0), left, gamma * gae_lambda)
