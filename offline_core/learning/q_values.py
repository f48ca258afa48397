"""How the Q of recorded actions compares with what followed them."""

from __future__ import annotations

from typing import NamedTuple

from offline_core.data.episodes import columns
from offline_core.learning.returns import discounted_sums, steps_left
from offline_core.learning.steps import Steps

NEVER_ENDS = 1e-6
"""Share of the discounted steps that was recorded, below which nothing is known of what follows."""


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


def q_warnings(q: float, recorded: RecordedReturns) -> list[str]:
    """Return what speaks against critics that give the recorded actions a Q of `q` on average.

    A policy that is learned is to be better than what was recorded, so a Q above the mean is no fault, and one far below it is.
    """
    told = f"Q of the recorded actions is {q:.4g} on average, and what followed them came to {recorded.mean:.4g}"
    if recorded.mean - q > max(abs(recorded.mean) / 2, recorded.deviation):
        return [
            f"{told}: the critics have not learned how much the returns are, so the policy goes by values that mean little. "
            "Train longer (optimizer.max_epochs), or set data.rewards.scale to return_range."
        ]
    if q > recorded.highest:
        return [
            f"{told}, {recorded.highest:.4g} at most: the critics promise more than any recorded step shows. Play or estimate "
            "the policy before you believe it, or use an algorithm that stays nearer to the data (iql, cql)."
        ]
    return []
