"""Rewards and weights of recorded episodes, in the form that estimators compute with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True, slots=True)
class Model:
    """What a Q function says of the recorded episodes, float64."""

    start_values: np.ndarray
    """(E,) V(s_0)."""
    errors: np.ndarray
    """(N,) r + γ V(s') - Q(s, a), where V is 0 after a terminal step and after the last step that counts."""
    end_values: np.ndarray
    """(E,) V(s') after the last recorded step: what the function expects beyond the recording, 0 where nothing follows."""


@dataclass(frozen=True)
class Trajectories:
    """Rewards and log-ratios of E episodes of N steps in all, each of at least one; float64.

    Not an `EpisodeBatch`: numbers that estimators derive (discounts, weights), with the discount they depend on, and no data.

    Arguments:
        lengths: (E,) int64, in steps.
        rewards: (N,)
        log_ratios: (N,) log π(a|s) - log b(a|s) of the actions taken; -inf where π never does that.
        gamma: the discount a step.
        model: what a Q function says, for those methods that need one.
        unrecorded: (E,) discounted steps that count after the last recorded one, see `unrecorded_steps`; None: there are none.
    """

    lengths: np.ndarray
    rewards: np.ndarray
    log_ratios: np.ndarray
    gamma: float
    model: Model | None = None
    unrecorded: np.ndarray | None = None

    def __len__(self) -> int:
        """Episodes."""
        return len(self.lengths)

    def select(self, chosen: np.ndarray) -> Trajectories:
        """Some of the episodes, with what the same Q function says of them.

        Arguments:
            chosen: (E,) bool.
        """
        steps, model = np.repeat(chosen, self.lengths), self.model
        return Trajectories(
            lengths=self.lengths[chosen],
            rewards=self.rewards[steps],
            log_ratios=self.log_ratios[steps],
            gamma=self.gamma,
            model=model and Model(model.start_values[chosen], model.errors[steps], model.end_values[chosen]),
            unrecorded=None if self.unrecorded is None else self.unrecorded[chosen],
        )

    @cached_property
    def starts(self) -> np.ndarray:
        """(E,) the first step of each."""
        return np.asarray(np.cumsum(self.lengths) - self.lengths)

    @cached_property
    def times(self) -> np.ndarray:
        """(N,) steps since the first one of the episode."""
        return np.asarray(np.arange(len(self.rewards)) - np.repeat(self.starts, self.lengths))

    @cached_property
    def discounts(self) -> np.ndarray:
        """(N,) γ^t."""
        return np.asarray(self.gamma**self.times, np.float64)

    @cached_property
    def returns(self) -> np.ndarray:
        """(E,) discounted, up to where the recording ends."""
        return np.add.reduceat(self.discounts * self.rewards, self.starts)

    @cached_property
    def log_weights(self) -> np.ndarray:
        """(N,) sums of the log-ratios of a step and those before it in its episode, not spoilt by other episodes."""
        parts = np.split(self.log_ratios, self.starts[1:])
        return np.concatenate([np.cumsum(part, dtype=np.float64) for part in parts])

    @cached_property
    def episode_log_weights(self) -> np.ndarray:
        """(E,) of whole episodes."""
        return np.asarray(self.log_weights[self.starts + self.lengths - 1])

    @cached_property
    def lost_at(self) -> int | None:
        """The first time by which every episode has done what π never does, so that all weights are 0; None: some do not."""
        never = np.where(np.isneginf(self.log_ratios), self.times, len(self.rewards))
        last = int(np.minimum.reduceat(never, self.starts).max())
        return None if last == len(self.rewards) else last
