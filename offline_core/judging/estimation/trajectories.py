"""Rewards and weights of recorded episodes, in the form that estimators compute with."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from offline_core.data.store.storage_errors import storage_errors
from offline_core.judging.estimation.bootstrap import Groups

STEPS_AT_A_TIME = 2**20
MOST_IN_MEMORY = 2**20
"""Numbers of an array that stays in memory, see `spooled`."""
_FOLDER = "the folder of temporary files (set TMPDIR to another one)"


def spooled(*shape: int) -> np.ndarray:
    """Return an array of zeros, float64, to be filled: in memory, or in a file without a name, which is gone with the array.

    All of the file is written now, so that a full disk is an error here.

    Raises:
        StorageError: The disk of temporary files is full.
    """
    left = math.prod(shape)
    if left <= MOST_IN_MEMORY:
        return np.zeros(shape)
    with storage_errors("write to", _FOLDER), tempfile.TemporaryFile(prefix="offline-") as file:
        while left:
            left -= file.write(bytes(8 * min(left, MOST_IN_MEMORY))) // 8
        file.flush()
        return np.asarray(np.memmap(file, np.float64, "r+", shape=shape))


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
    Estimators take them by `parts`, so that what they derive by step is never there of all steps at once. What they begin with
    may be in files, see `spooled`.

    Arguments:
        lengths: (E,) int64, in steps.
        rewards: (N,)
        log_ratios: (N,) log π(a|s) - log b(a|s) of the actions taken; -inf where π never does that.
        gamma: the discount a step.
        model: what a Q function says, for those methods that need one.
        unrecorded: (E,) discounted steps that count after the last recorded one, see `unrecorded_steps`; None: there are none.
        lot: see `groups`; None: by lot.
    """

    lengths: np.ndarray
    rewards: np.ndarray
    log_ratios: np.ndarray
    gamma: float
    model: Model | None = None
    unrecorded: np.ndarray | None = None
    lot: Groups | None = None

    def __len__(self) -> int:
        """The number of episodes."""
        return len(self.lengths)

    def parts(self) -> Iterator[Trajectories]:
        """The same episodes in their order, `STEPS_AT_A_TIME` steps at a time unless one alone has more."""
        if len(self.rewards) <= STEPS_AT_A_TIME:
            yield self
            return
        ends = np.cumsum(self.lengths)
        begin = step = 0
        while begin < len(self):
            end = max(begin + 1, int(np.searchsorted(ends, step + STEPS_AT_A_TIME, side="right")))
            until = int(ends[end - 1])
            yield self._some(slice(begin, end), slice(step, until), self.groups.part(begin, end))
            begin, step = end, until

    def _some(self, episodes: slice | np.ndarray, steps: slice | np.ndarray, lot: Groups | None) -> Trajectories:
        model = self.model
        return Trajectories(
            lengths=self.lengths[episodes],
            rewards=self.rewards[steps],
            log_ratios=self.log_ratios[steps],
            gamma=self.gamma,
            model=model and Model(model.start_values[episodes], model.errors[steps], model.end_values[episodes]),
            unrecorded=None if self.unrecorded is None else self.unrecorded[episodes],
            lot=lot,
        )

    @cached_property
    def groups(self) -> Groups:
        """What the bootstrap draws."""
        return Groups.by_lot(len(self)) if self.lot is None else self.lot

    def select(self, chosen: np.ndarray) -> Trajectories:
        """Some of the episodes, with what the same Q function says of them.

        Arguments:
            chosen: (E,) bool.
        """
        return self._some(chosen, np.repeat(chosen, self.lengths), None)

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
        """(N,) discounts γ^t."""
        return np.asarray((self.gamma ** np.arange(self.lengths.max(), dtype=np.float64))[self.times])

    @cached_property
    def returns(self) -> np.ndarray:
        """(E,) discounted returns, up to where the recording ends."""
        return np.concatenate([np.add.reduceat(part.discounts * part.rewards, part.starts) for part in self.parts()])

    @cached_property
    def continued(self) -> np.ndarray:
        """(E,) `returns`, and what the Q function expects after a recording that ends before its episode."""
        if self.model is None:
            return self.returns
        return np.asarray(self.returns + self.gamma ** self.lengths.astype(np.float64) * self.model.end_values)

    @cached_property
    def log_weights(self) -> np.ndarray:
        """(N,) sums of the log-ratios of a step and those before it in its episode, not spoilt by other episodes."""
        return sums_within(self.log_ratios, self.lengths)

    @cached_property
    def episode_log_weights(self) -> np.ndarray:
        """(E,) sums of the log-ratios of whole episodes."""
        return np.concatenate([part.log_weights[part.starts + part.lengths - 1] for part in self.parts()])

    @cached_property
    def times_that_count(self) -> int:
        """How many times there are up to the end of the longest episode, without those whose discount rounds to 0."""
        return int(np.count_nonzero(self.gamma ** np.arange(self.lengths.max(), dtype=np.float64)))

    @cached_property
    def lost_at(self) -> int | None:
        """The first time by which every episode has done what π never does, so that all weights are 0; None if some do not."""
        longest = int(self.lengths.max())
        last = 0
        for part in self.parts():
            never = np.where(np.isneginf(part.log_ratios), part.times, longest)
            last = max(last, int(np.minimum.reduceat(never, part.starts).max()))
        return None if last == longest else last

    @cached_property
    def kept(self) -> dict[object, tuple[np.ndarray, np.ndarray]]:
        """What estimators have added up by group and time."""
        return {}


def sums_within(values: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """(N,) float64 cumulative sums that begin anew with each of E episodes, as `np.cumsum` of each alone gives them."""
    longest = int(lengths.max())
    if (lengths == longest).all():
        return np.cumsum(values.reshape(-1, longest), axis=1, dtype=np.float64).ravel()
    starts, sums = np.cumsum(lengths) - lengths, np.empty(len(values))
    _, exponents = np.frexp(lengths)
    for exponent in np.unique(exponents):  # episodes are padded to the longest, which is less than twice as long as any of them
        own = np.flatnonzero(exponents == exponent)
        times = np.arange(lengths[own].max())
        is_step = times < lengths[own][:, None]
        steps = (starts[own][:, None] + times)[is_step]
        padded = np.zeros(is_step.shape)
        padded[is_step] = values[steps]
        sums[steps] = np.cumsum(padded, axis=1)[is_step]
    return sums
