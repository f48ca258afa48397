"""Why an episode is unlike the others, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from offline_core.data.episodes import columns
from offline_core.judging.ranking import features as f
from offline_core.judging.ranking.steps import SECONDS
from offline_core.runtime.units import duration_text

MOST_REASONS = 3
MOST_DEVIATIONS = 1000
"""Beyond this many, how many says nothing."""
ACTIONS, TRANSITIONS, REWARDS = "action surprise", "transition surprise", "reward surprise"
LARGEST_TRANSITION, LARGEST_REWARD = "largest transition surprise", "largest reward surprise"
STEPWISE = {
    ACTIONS: ACTIONS,
    TRANSITIONS: TRANSITIONS,
    LARGEST_TRANSITION: TRANSITIONS,
    REWARDS: REWARDS,
    LARGEST_REWARD: REWARDS,
}
"""Features that are of a signal by step, which says where."""


def reason(
    names: Sequence[str],
    values: np.ndarray,
    deviations: np.ndarray,
    medians: np.ndarray,
    where: Mapping[str, tuple[int, int]],
    *,
    threshold: float,
) -> str:
    """The features of one episode that are farthest from the others', the farthest first.

    Arguments:
        values, deviations: (F,) of the episode.
        medians: (F,) of all.
        where: (first, last step) by signal.
    """
    order = np.argsort(-np.abs(deviations), kind="stable")
    said: list[str] = []
    subjects: set[str] = set()
    for i in order:
        if abs(deviations[i]) < threshold or len(said) == MOST_REASONS:
            break
        subject = STEPWISE.get(names[i], names[i].rpartition(" of ")[2])
        if subject not in subjects:
            subjects.add(subject)
            said.append(_phrase(names[i], values[i], deviations[i], medians[i], where.get(STEPWISE.get(names[i], ""))))
    return "; ".join(said)


def _phrase(name: str, value: float, deviation: float, median: float, steps: tuple[int, int] | None) -> str:
    if name == f.CUT:
        return "cut off before the usual length, without a termination"
    side = "above" if deviation > 0 else "below"
    far = f"{abs(deviation):.1f}" if abs(deviation) < MOST_DEVIATIONS else f"over {MOST_DEVIATIONS:,}"
    is_time = name.endswith(SECONDS)
    name = name.removesuffix(SECONDS) + columns.TIME if is_time else name
    now, usual = (duration_text(each) if is_time else f"{each:.4g}" for each in (value, median))
    text = f"{name} {far} robust deviations {side} the median ({now}, usually {usual})"
    return text if steps is None else f"{text}, most in steps {steps[0]:,} to {steps[1]:,}"


def most_unusual_run(signal: np.ndarray, usual: float) -> tuple[int, int]:
    """(first, last) of the run of steps whose sum above the usual is the largest (Kadane's maximum subarray).

    Arguments:
        signal: (T,), at least one step.
        usual: what a step may have without counting.
    """
    sums = np.concatenate([[0.0], np.cumsum(signal - usual)])
    lowest = np.minimum.accumulate(sums[:-1])
    last = int(np.argmax(sums[1:] - lowest))
    first = int(np.flatnonzero(sums[: last + 1] == lowest[last])[-1])
    return first, last
