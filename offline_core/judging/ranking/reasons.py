"""Why an episode is unlike the others, in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from offline_core.data.episodes import columns
from offline_core.judging.ranking import features as f
from offline_core.judging.ranking.steps import SECONDS
from offline_core.runtime.units import count_text, duration_text, number_text

MOST_REASONS = 3
UNIT = " standard deviations"
MOST_DEVIATIONS = 1000
"""Largest number of deviations that is told; beyond it the number says nothing."""
ACTIONS, TRANSITIONS, REWARDS = "action surprise", "transition surprise", "reward surprise"
LARGEST_TRANSITION, LARGEST_REWARD = "largest transition surprise", "largest reward surprise"
STEPWISE = {
    ACTIONS: ACTIONS,
    TRANSITIONS: TRANSITIONS,
    LARGEST_TRANSITION: TRANSITIONS,
    REWARDS: REWARDS,
    LARGEST_REWARD: REWARDS,
}
"""Signal of each feature that is computed from one; a signal is a number a step, and says where an episode is unusual."""
SURPRISES = {
    ACTIONS: ("actions are expected less", "actions are expected more"),
    TRANSITIONS: ("next observations are expected less", "next observations are expected more"),
    LARGEST_TRANSITION: ("one next observation is expected less", "the least expected next observation is expected more"),
    REWARDS: ("rewards are higher for what was seen and done", "rewards are lower for what was seen and done"),
    LARGEST_REWARD: ("one reward is expected less", "the least expected reward is expected more"),
}
"""What a surprise above the median, and one below it, say of an episode; the number itself is in units of a model."""
SIDES = {f.LENGTH: ("longer", "shorter"), f.MISSING: ("more", "fewer")}
"""Words for a feature above and below the others; those of all other features are "higher" and "lower"."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How an episode stands among the others: F numbers, each of one feature."""

    values: np.ndarray
    deviations: np.ndarray
    """Robust standard deviations from the median, signed."""
    beyond: np.ndarray
    """Other episodes whose value is nearer to the median's side."""
    others: np.ndarray
    """Other episodes whose value is known."""


def standings(values: np.ndarray, deviations: np.ndarray, rows: np.ndarray) -> Iterator[Standing]:
    """Yield how each of the episodes `rows` stands among all, in their order.

    Arguments:
        values, deviations: (E, F) of all episodes; a value that is not finite is not known.
    """
    beyond, others = np.zeros((len(rows), values.shape[1]), int), np.zeros(values.shape[1], int)
    for i in range(values.shape[1]):
        ordered = np.sort(values[np.isfinite(values[:, i]), i])
        lower = np.searchsorted(ordered, values[rows, i])
        higher = len(ordered) - np.searchsorted(ordered, values[rows, i], side="right")
        beyond[:, i], others[i] = np.where(deviations[rows, i] > 0, lower, higher), max(0, len(ordered) - 1)
    for number, row in enumerate(rows.tolist()):
        yield Standing(values[row], deviations[row], beyond[number], others)


def reason(
    names: Sequence[str], standing: Standing, medians: np.ndarray, where: Mapping[str, tuple[int, int]], *, threshold: float
) -> str:
    """The features of one episode that are farthest from the others', the farthest first.

    Arguments:
        medians: (F,) of all.
        where: (first, last step) by signal.
    """
    order = np.argsort(-np.abs(standing.deviations), kind="stable")
    said: list[str] = []
    subjects: set[str] = set()
    for i in order:
        if abs(standing.deviations[i]) < threshold or len(said) == MOST_REASONS:
            break
        subject = STEPWISE.get(names[i], names[i].rpartition(" of ")[2])
        if subject not in subjects:
            subjects.add(subject)
            said.append(_phrase(names[i], standing, int(i), medians[i], where.get(STEPWISE.get(names[i], ""))))
    return "; ".join(said)


def deviations_text(score: float) -> str:
    """`12.3 standard deviations`."""
    return f"{score:.1f}{UNIT}" if score < MOST_DEVIATIONS else f"over {MOST_DEVIATIONS:,}{UNIT}"


def with_unit_once(text: str) -> str:
    """The same text, which names the standard deviations only with the first of its numbers."""
    first, unit, rest = text.partition(UNIT)
    return f"{first}{unit}{without_unit(rest)}"


def without_unit(text: str) -> str:
    """The same text under a head that says what its numbers are."""
    return text.replace(UNIT, "")


def share_text(count: int, others: int) -> str:
    """How many of the other episodes: `all other episodes`, or `99.2 % of the episodes`, rounded down."""
    return "all other episodes" if count >= others else f"{math.floor(1000 * count / others) / 10:g} % of the episodes"


def _phrase(name: str, standing: Standing, i: int, median: float, steps: tuple[int, int] | None) -> str:
    if name == f.CUT:
        return "cut off before the usual length, without a termination"
    is_above = bool(standing.deviations[i] > 0)
    than = share_text(int(standing.beyond[i]), int(standing.others[i]))
    far = f"{deviations_text(abs(standing.deviations[i]))} {'above' if is_above else 'below'}"
    at = "" if steps is None else f", most in steps {steps[0]:,} to {steps[1]:,}"
    if name in SURPRISES:
        return f"{SURPRISES[name][not is_above]} than in {than} (a surprise {far} the median{at})"
    called = name.removesuffix(SECONDS) + columns.TIME if name.endswith(SECONDS) else name
    now, usual = _told(name, standing.values[i]), _told(name, median)
    side = SIDES.get(name, ("higher", "lower"))[not is_above]
    return f"{called} {now}, {side} than in {than} ({far} the median of {usual})"


def _told(name: str, value: float) -> str:
    if name.endswith(SECONDS):
        return duration_text(value)
    if name.startswith(f.SHARES):
        return f"{100 * value:.3g} %"
    return count_text(round(value), "step") if name == f.LENGTH else number_text(value)


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
