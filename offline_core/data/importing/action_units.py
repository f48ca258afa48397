"""Recorded actions → actions in the units of the environment, clipped as RLlib clips them, with their log-probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import gymnasium as gym
import numpy as np

from offline_core.data.episodes import columns
from offline_core.data.episodes.nested import Nested
from offline_core.data.importing.values import conform, one_a_step
from offline_core.errors import ConfigError

Bound: TypeAlias = "float | np.ndarray"
Range: TypeAlias = tuple[Bound, Bound]
"""(low, high) of what was recorded: numbers, or arrays with the shape of an action."""

ROUNDING = 1e-6
"""A share of the range: rounding to float32 moves actions this far outside it."""
DENSITY_TOLERANCE = 1e-3
"""So much may action_logp differ, relative to one plus its size, from the density that action_dist_inputs give."""


class EnvActions(NamedTuple):
    """What N steps hold in the units of the environment."""

    actions: np.ndarray
    """(N, *shape) float64, within the bounds of the space."""
    extras: dict[str, np.ndarray]
    """`action_logp` and `action_dist_inputs`, if the source has them."""
    clipped: np.ndarray
    """(N,) bool: the recorded action lay outside the range."""


def in_env_units(actions: Nested, extras: Mapping[str, Nested], recorded: Range, space: gym.Space[Any] | None) -> EnvActions:
    """Actions of the range `recorded` → of the bounds of `space`, as the environment got them: RLlib records samples of a
    Gaussian, scales them, and clips them to the bounds.

    `action_logp` is of the sample before it was clipped. Where `action_dist_inputs` are its mean and log standard deviation,
    which shows as the density they give is `action_logp`, it becomes that of the clipped Gaussian: at a bound the whole tail
    beyond it. Elsewhere it is scaled with the actions, and NaN for a clipped one, of which it is not known.

    Raises:
        ConfigError: the space has no bounds.
        SpaceError: the actions do not have its shape.
    """
    box = _bounded(space)
    values = conform(actions, gym.spaces.Box(-np.inf, np.inf, box.shape, np.float64), columns.ACTIONS)
    assert isinstance(values, np.ndarray)
    low, high = (np.broadcast_to(np.asarray(bound, np.float64), box.shape) for bound in recorded)
    span = np.where(high > low, high - low, 1.0)
    share = (values - low) / span
    outside = ((share < -ROUNDING) | (share > 1 + ROUNDING)).reshape(len(values), -1)
    width = box.high.astype(np.float64) - box.low
    clipped = np.asarray(outside.any(axis=1))
    in_units = bool((low == box.low).all() and (high == box.high).all())
    changed = clipped | (not in_units)
    of_width = width.reshape(-1) > 0
    ratio = np.where(of_width, width.reshape(-1) / span.reshape(-1), 1.0)
    new_extras: dict[str, np.ndarray] = {}
    if columns.ACTION_LOGP in extras:
        logs = one_a_step(extras[columns.ACTION_LOGP], columns.ACTION_LOGP)
        is_float = logs.dtype.kind == "f"
        scaled = logs - float(np.log(ratio[of_width]).sum())
        is_known = np.zeros(len(logs), bool)
        inputs = extras.get(columns.ACTION_DIST_INPUTS)
        if isinstance(inputs, np.ndarray) and inputs.shape == (len(values), 2 * ratio.size):
            gaussian = _Gaussian.of(inputs, values.reshape(len(values), -1))
            is_known = np.abs(gaussian.density.sum(axis=1) - logs) <= DENSITY_TOLERANCE * (1 + np.abs(logs))
            exact = gaussian.clipped_log_probs(low.reshape(-1), high.reshape(-1), ratio)[:, of_width].sum(axis=1)
            scaled = np.where(is_known, exact, scaled)
            mean = box.low.reshape(-1) + (gaussian.mean - low.reshape(-1)) * np.where(of_width, ratio, 0.0)
            moved = np.concatenate([mean, gaussian.log_std + np.log(ratio)], axis=1)
            new_extras[columns.ACTION_DIST_INPUTS] = np.where((is_known & changed)[:, None], moved, inputs).astype(inputs.dtype)
        scaled = np.where(changed, np.where(clipped & ~is_known, np.nan, scaled), logs)
        new_extras[columns.ACTION_LOGP] = scaled.astype(logs.dtype if is_float else np.float64)
    got = np.clip(values, box.low, box.high) if in_units else box.low + np.clip(share, 0, 1) * width
    return EnvActions(got, new_extras, clipped)


class _Gaussian(NamedTuple):
    """A diagonal one for each of N steps, and the sample that was taken of it; all (N, components)."""

    mean: np.ndarray
    log_std: np.ndarray
    sample: np.ndarray

    @classmethod
    def of(cls, inputs: np.ndarray, sample: np.ndarray) -> _Gaussian:
        mean, log_std = np.split(inputs.astype(np.float64), 2, axis=1)
        return cls(mean, log_std, sample)

    @property
    def density(self) -> np.ndarray:
        """The logarithms."""
        with np.errstate(over="ignore", invalid="ignore"):
            z = (self.sample - self.mean) * np.exp(-self.log_std)
            return -0.5 * z**2 - self.log_std - 0.5 * np.log(2 * np.pi)  # type: ignore[no-any-return]

    def clipped_log_probs(self, low: np.ndarray, high: np.ndarray, ratio: np.ndarray) -> np.ndarray:
        """Log-probabilities of what clipping to the bounds makes of the samples, in units `ratio` times as fine."""
        import torch

        with np.errstate(over="ignore", invalid="ignore"):
            precision = np.exp(-self.log_std)
            below, above = (low - self.mean) * precision, (self.mean - high) * precision
        at_low, at_high = (torch.special.log_ndtr(torch.from_numpy(z)).numpy() for z in (below, above))
        inside = self.density - np.log(ratio)
        return np.select([self.sample <= low, self.sample >= high], [at_low, at_high], inside)


def _bounded(space: gym.Space[Any] | None) -> gym.spaces.Box:
    if not isinstance(space, gym.spaces.Box) or not space.is_bounded():
        raise ConfigError(
            f"recorded_action_range scales actions to the bounds of the action space, which is {space}; declare a bounded Box."
        )
    return space
