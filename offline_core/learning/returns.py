"""What follows a step in its episode, summed up for all steps at once: returns, λ-returns, n steps; and Q beside that.

All functions are about the R rows of `Steps`: T rows an episode, and where they look ahead, one for the observation after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from offline_core.data.episodes import columns
from offline_core.runtime.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

    from offline_core.learning.steps import Steps

N_STEP_REWARDS, N_STEP_DISCOUNTS = "n_step_rewards", "n_step_discounts"
"""(R,) float32: the discounted rewards of the next m steps, and what the value after them counts: γ^m, 0 once terminated."""
RETURNS_TO_GO = "returns_to_go"
"""(R,) float32: the discounted rewards to the end of the episode."""
NEVER_ENDS = 1e-6
"""Share of the discounted steps that was recorded, below which nothing is known of what follows."""
NEAR_DATA = ("iql", "cql", "bc")
"""Algorithms that stay near the recorded actions; the first two learn values."""
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


class RecordedReturns(NamedTuple):
    """Discounted rewards from recorded steps on, as the critics learn them: with scaled rewards."""

    mean: float
    deviation: float
    highest: float


def recorded_returns(steps: Steps, gamma: float) -> RecordedReturns | None:
    """Return the returns from each step on; None: there are no steps, or all that counts lies after their recordings.

    An episode that did not terminate goes on with the mean of all steps, which solves mean = recorded + discounts · mean.
    """
    if not len(steps):
        return None
    left = steps_left(steps)
    is_open = ~steps.columns[columns.TERMINATEDS][steps.last_step[steps.episode]]
    recorded = discounted_sums(steps.columns[columns.REWARDS], left, gamma)[steps.rows]
    beyond = (gamma ** left.double() * is_open)[steps.rows]
    share = 1 - float(beyond.mean())
    if share < NEVER_ENDS:
        return None
    mean = float(recorded.mean()) / share
    returns = recorded + beyond * mean
    return RecordedReturns(mean, float(returns.std(correction=0)), float(returns.max()))


def q_warnings(q: float, recorded: RecordedReturns, *, scale: float | str, algorithm: str) -> list[str]:
    """Return what speaks against critics that give the recorded actions a Q of `q` on average.

    A policy that is learned is to be better than what was recorded, so a Q above the mean is no fault, and one far below it is.
    Networks begin near 0: a Q that is still nearer to that than to all returns says how little was learned, on whichever side.

    Arguments:
        scale: `data.rewards.scale`.
        algorithm: that is in use, and so is not proposed.
    """
    set_to = scale if isinstance(scale, str) else f"{scale:.4g}"
    told = f"Q of the recorded actions is {q:.4g} on average, and what followed them came to {recorded.mean:.4g}"
    is_near_start = abs(q) < abs(recorded.mean) / 2 and q > recorded.highest
    if is_near_start or recorded.mean - q > max(abs(recorded.mean) / 2, recorded.deviation):
        return [
            f"{told}: the critics have not learned how much the returns are, so the policy goes by values that mean little. "
            "Train longer (optimizer.max_epochs, optimizer.max_updates), or "
            + (
                "set data.rewards.scale to return_range."
                if scale == 1.0
                else f"set data.rewards.scale, which is {set_to}, to a smaller number."
            )
        ]
    if q > recorded.highest:
        nearer = ", ".join(name for name in NEAR_DATA if name != algorithm)
        return [
            f"{told}, {recorded.highest:.4g} at most: the critics promise more than any recorded step shows. Play or estimate "
            f"the policy before you believe it, or use an algorithm that stays nearer to the data ({nearer})."
        ]
    return []
