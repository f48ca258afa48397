"""What a dataset is like: how good, how varied, how random what acted was, how dense its rewards are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from pydantic import Field

from offline_core.data.episodes import columns
from offline_core.judging.ranking.sample import Sample
from offline_core.runtime.result import Part
from offline_core.runtime.seeding import derive_seed

PLANES = 10
"""Random hyperplanes: 1,024 bins at most."""
BEST = 0.95
"""The quantile of the returns that stands for the best: the best alone may be luck."""
NEAR = 0.1
"""How far below the best return an episode is still near it, as a share of the distance between the worst and the best."""
USUAL_NUMBERS = (0.1, 10.0)
"""Spread of observations and actions that a network takes as they are; sizes up to the second, too."""


CONSTANT = 0.25
"""Stochasticity up to which a state has one action: returns then differ by where episodes start."""

ActionKind = Literal["discrete", "bounded", "unbounded", "composite"]
"""Actions of a list; of a Box with bounds, or without; of any other space, or of one that is not known."""


class ActionMeasures(Part):
    """What actions are, and which were taken; numbers are of the components of a Box, in C order."""

    kind: ActionKind
    shape: list[int] = Field([])
    dtype: str = ""
    low: list[float] = Field([], description="The bounds of the action space; infinite where there is none.")
    high: list[float] = Field([])
    recorded_low: list[float] = Field([], description="The smallest that were taken.")
    recorded_high: list[float] = Field([], description="The largest.")
    spreads: tuple[float, float] = Field((1.0, 1.0), description="Smallest and largest standard deviation of a component.")
    used: float | None = Field(None, description="Share of the bounds that 99 % of the actions take, by component the least.")

    @classmethod
    def of(
        cls, space: gym.Space[Any] | None, sample: Sample, recorded: Sequence[tuple[np.ndarray, np.ndarray]]
    ) -> ActionMeasures:
        """Measure the actions of the sample.

        Arguments:
            recorded: the (smallest, largest) actions of each batch; the batches have all steps of the dataset.
        """
        if not isinstance(space, gym.spaces.Box):
            return cls(kind="discrete" if isinstance(space, gym.spaces.Discrete) else "composite")
        taken = sample.batch.columns[columns.ACTIONS].reshape(len(sample.part), -1).astype(np.float64)
        spreads, width = taken.std(axis=0), space.high.ravel().astype(np.float64) - space.low.ravel()
        low, high = np.quantile(taken, [0.005, 0.995], axis=0)
        bounded = bool(space.is_bounded())
        return cls(
            kind="bounded" if bounded else "unbounded",
            shape=list(space.shape),
            dtype=str(space.dtype),
            low=space.low.ravel().tolist(),
            high=space.high.ravel().tolist(),
            recorded_low=np.min([smallest for smallest, _ in recorded], axis=0).tolist(),
            recorded_high=np.max([largest for _, largest in recorded], axis=0).tolist(),
            spreads=(float(spreads.min()), float(spreads.max())),
            used=float(((high - low) / np.maximum(width, 1e-12)).min()) if bounded and (width > 0).all() else None,
        )


class ObservationScale(Part):
    """How large the numbers of observations are."""

    spreads: tuple[float, float] = Field(description="Smallest and largest standard deviation of those that vary.")
    largest: float = Field(description="The largest size: of a median, with its spread.")

    @classmethod
    def of(cls, sample: Sample) -> ObservationScale:
        values = sample.numbers.of(columns.OBS)
        finite = np.where(np.isfinite(values), values, 0.0)
        spreads = finite.std(axis=0)
        if not (varies := spreads > 0).any():
            return cls(spreads=(1.0, 1.0), largest=1.0)
        sizes = np.abs(np.median(finite, axis=0)) + spreads
        return cls(spreads=(float(spreads[varies].min()), float(spreads[varies].max())), largest=float(sizes.max()))

    @property
    def are_unusual(self) -> bool:
        """Whether a network has to be told the scale of the numbers."""
        return self.spreads[0] < USUAL_NUMBERS[0] or max(*self.spreads, self.largest) > USUAL_NUMBERS[1]


class Measures(Part):
    """Schweighofer et al. 2022 (arXiv 2111.04714) measure a dataset by its returns (TQ) and its states and actions (SACo)."""

    episodes: int
    steps: int
    median_length: float = Field(description="The horizon, in steps.")
    worst_return: float = Field(description="5 % of the episodes are at most this good.")
    median_return: float
    best_return: float = Field(description="5 % of the episodes are at least this good.")
    expertise: float = Field(
        description="Mean return, 1 for the target or else the best and 0 for the worst; above 0.9 where all are alike."
    )
    near_best: float = Field(description="Share of the episodes at most a tenth of that distance below.")
    spread: float = Field(description="Best less worst return, in units of the larger of both.")
    stochasticity: float | None = Field(
        description="How little the state says of the action, by a clone on episodes that it was not fitted to: 0 for one that "
        "always acts alike, 1 for one by lot. None: nothing could be cloned."
    )
    coverage: float = Field(
        description="Bins of random hyperplanes that states and actions spread over, as the exponential of their entropy, in "
        "units of points all over the space between the extremes: 1 is everywhere."
    )
    reward_density: float = Field(description="Share of the steps whose reward is not the most common one.")
    actions: ActionMeasures
    observations: ObservationScale

    @property
    def are_single_choices(self) -> bool:
        """Whether each episode is one step, such as an offer or a click: it has no parts, and its return is one reward."""
        return self.steps <= self.episodes

    @property
    def are_choices_by_lot(self) -> bool:
        """Whether each episode is one choice that what was seen does not decide, as far as a clone can tell."""
        return self.are_single_choices and (self.stochasticity is None or self.stochasticity > CONSTANT)


def coverage_of(sample: Sample, *, seed: int) -> float:
    """See `Measures.coverage`; the bins are those of SimHash (Charikar 2002; Tang et al. 2017 count states by it)."""
    values = sample.numbers.of(columns.OBS, columns.ACTIONS)
    low, high = np.quantile(np.where(np.isfinite(values), values, 0.0), [0.005, 0.995], axis=0)
    varies = high > low
    if not varies.any():
        return 0.0
    rng = np.random.default_rng(derive_seed(seed, "outliers", "coverage"))
    scaled = np.clip((2 * (values[:, varies] - low[varies]) / (high - low)[varies]) - 1, -1, 1)
    scaled = np.where(np.isfinite(scaled), scaled, 0.0)
    size = scaled.shape[1]
    planes, shifts = rng.normal(size=(size, PLANES)), rng.normal(size=PLANES) * (size / 12) ** 0.5
    everywhere = rng.uniform(-1, 1, scaled.shape)
    spread, most = (_effective((points @ planes + shifts > 0) @ (1 << np.arange(PLANES))) for points in (scaled, everywhere))
    return min(1.0, spread / most)


def _effective(bins: np.ndarray) -> float:
    shares = np.bincount(bins) / max(1, len(bins))
    return float(np.exp(-np.sum(shares[shares > 0] * np.log(shares[shares > 0]))))


def density_of(rewards: np.ndarray) -> float:
    """See `Measures.reward_density`."""
    _, counts = np.unique(rewards, return_counts=True)
    return 1 - float(counts.max()) / len(rewards) if len(rewards) else 0.0


def measures_of(
    returns: np.ndarray,
    lengths: np.ndarray,
    *,
    target: float | None,
    noise: np.ndarray | None,
    coverage: float,
    density: float,
    actions: ActionMeasures,
    observations: ObservationScale,
) -> Measures:
    """Measure a dataset by its returns (E,), its lengths (E,) and the clone's noise (N,)."""
    finite = returns[np.isfinite(returns)]
    worst, median, best = np.quantile(finite, [1 - BEST, 0.5, BEST]) if len(finite) else (0.0, 0.0, 0.0)
    size = max(abs(worst), abs(best))
    spread = float((best - worst) / size) if size else 0.0
    goal = best if target is None else target
    distance = max(goal - worst, 0.1 * max(abs(goal), abs(worst)), 1e-12)  # where all are alike, none is far from the best
    stochasticity = None if noise is None or np.isnan(noise).any() else float(np.clip(noise.mean(), 0, 1))
    if stochasticity is not None and actions.kind in ("bounded", "unbounded"):
        stochasticity = stochasticity**0.5
    return Measures(
        episodes=len(returns),
        steps=int(lengths.sum()),
        median_length=float(np.median(lengths)) if len(lengths) else 0.0,
        worst_return=float(worst),
        median_return=float(median),
        best_return=float(best),
        expertise=float(np.clip(1 - (goal - finite.mean()) / distance, 0, 1)) if len(finite) else 0.0,
        near_best=float((finite >= goal - NEAR * distance).mean()) if len(finite) else 0.0,
        spread=spread,
        stochasticity=stochasticity,
        coverage=coverage,
        reward_density=density,
        actions=actions,
        observations=observations,
    )
