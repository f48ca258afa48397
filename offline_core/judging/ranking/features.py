"""What is looked at of an episode: a few numbers each, without a loop over steps."""

from __future__ import annotations

import gymnasium as gym
import numpy as np

from offline_core.data.episodes import columns
from offline_core.data.quality.steps import StepBatch
from offline_core.judging.ranking.steps import StepNumbers

BROKEN, AT_BOUNDS, CUT, MISSING = "share of NaN or infinity in", "share at the bounds of", "cut off before", "missing steps"
LENGTH, RETURN = "length", "return"
MOST_CUT = 0.25
"""Largest share of the episodes that may be cut off and be outliers by it; where there are more, the log was made so."""
SHARES = "share "
"""What features that are a share of the steps begin with."""
MEAN, SPREAD, JUMP, STILL = "mean of", "spread of", "largest jump of", "share of unchanged"


Features = dict[str, np.ndarray]
"""Numbers of E episodes by name, (E,) float64; NaN: not known."""


def features_of(batch: StepBatch, numbers: StepNumbers) -> Features:
    """Return, length, and of each number of a step its mean, spread, largest jump and the share of steps where it stays."""
    rows = batch.lengths > 0
    starts, lengths = batch.offsets[:-1][rows], batch.lengths[rows].astype(float)
    values, finite = np.where(np.isfinite(numbers.values), numbers.values, 0.0), np.isfinite(numbers.values)
    features: Features = {RETURN: batch.returns(), LENGTH: batch.lengths.astype(float)}

    def add(name: str, of_episodes: np.ndarray) -> None:
        features[name] = of_all(of_episodes, rows)

    many = np.maximum(_sum(finite, starts), 1)
    mean = _sum(values, starts) / many
    deviations = np.where(finite, values - np.repeat(mean, lengths.astype(int), axis=0), 0.0)
    spread = np.sqrt(_sum(deviations**2, starts) / many)
    steps = np.abs(np.diff(values, axis=0, prepend=values[:1]))
    steps[starts] = 0.0
    jump, still = _max(steps, starts), (_sum(steps == 0, starts) - 1) / np.maximum(lengths - 1, 1)[:, None]
    for i, (name, column) in enumerate(zip(numbers.names, numbers.columns, strict=True)):
        if column != columns.TIME:  # grows with each episode
            add(f"{MEAN} {name}", mean[:, i])
        if column == columns.ACTIONS and isinstance(batch.action_space, gym.spaces.Discrete):
            continue  # the mean says all of actions of a list
        if column != columns.TIME:
            add(f"{SPREAD} {name}", spread[:, i])
        add(f"{JUMP} {name}", jump[:, i])
        if column == columns.OBS:
            add(f"{STILL} {name}", np.where(lengths > 1, still[:, i], np.nan))
    for root in (columns.OBS, columns.ACTIONS, columns.REWARDS):
        broken = ~finite[:, [column == root for column in numbers.columns]].all(axis=1, keepdims=True)
        add(f"{BROKEN} {root}", (_sum(broken, starts) / lengths[:, None])[:, 0])
    if isinstance(batch.action_space, gym.spaces.Box):
        space, actions = batch.action_space, numbers.of(columns.ACTIONS)
        if actions.shape[1] == space.low.size:
            bound = np.asarray((actions <= space.low.ravel()) | (actions >= space.high.ravel())).any(axis=1, keepdims=True)
            add(f"{AT_BOUNDS} {columns.ACTIONS}", (_sum(np.asarray(bound), starts) / lengths[:, None])[:, 0])
    gaps = np.diff(batch.t, prepend=batch.t[:1]).astype(float)[:, None] - 1
    gaps[starts] = 0.0
    add(MISSING, _max(gaps, starts)[:, 0])
    terminated = batch.any_in_piece(batch.terminated)
    return features | {CUT: np.where(terminated, np.nan, batch.lengths)}


def of_choices(numbers: StepNumbers) -> set[str]:
    """Features of what was chosen and what it was paid.

    A share of NaN or infinity is none: that is a defect, whatever was chosen.
    """
    own = [
        name
        for name, column in zip(numbers.names, numbers.columns, strict=True)
        if column in (columns.ACTIONS, columns.REWARDS)
    ]
    return {RETURN, f"{AT_BOUNDS} {columns.ACTIONS}", *(f"{kind} {name}" for kind in (MEAN, SPREAD, JUMP) for name in own)}


def cut_before(features: Features) -> np.ndarray:
    """(E,) 1 for an episode that ends without a termination, and not at a time limit; 0 for all where many do.

    A time limit is the longest length of all.
    """
    cut = features[CUT] < features[LENGTH].max()  # NaN where it terminates
    return cut.astype(float) if cut.mean() <= MOST_CUT else np.zeros(len(cut))


def of_all(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """(E,) values of the episodes where `rows` (E,) is True, NaN of the others."""
    every = np.full(len(rows), np.nan)
    every[rows] = values
    return every


def _sum(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """(episodes, …) sums of values (N, …) over the rows of each episode."""
    return np.add.reduceat(values.astype(float), starts, axis=0)


def _max(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    return np.maximum.reduceat(values, starts, axis=0)
