"""What actions are worth where a log is of one step and few contexts: a table of means, which takes no updates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from offline_core.data.episodes import EpisodeBatch, columns
from offline_core.judging.estimation.logged import inputs_of
from offline_core.judging.estimation.q_function import is_listed
from offline_core.judging.estimation.target import TargetPolicy
from offline_core.policies.categorical import CategoricalHead

MOST_CONTEXTS = 1_000
"""Most different observations that a table has; with more, a network has to tell which are alike."""
MOST_CELLS = 1_000_000
"""Most cells of a table: contexts times actions."""
MOST_BYTES = 4_096
"""Largest observation that is a context; a larger one is an image, say, and hardly ever comes twice."""
ROWS_LOOKED_AT = 10_000
"""Rows that are looked at together; in most logs with too many contexts, the first so many show it."""


Said = tuple[np.ndarray, np.ndarray, np.ndarray]
"""(values of the start states, errors of the steps, values after the last step) of E episodes, see `Model`."""


def fitted_to(part: np.ndarray, number: int) -> np.ndarray:
    """(E,) bool, the episodes of all other parts than this one; all where there is one part."""
    return np.asarray(part != number if part.any() else part == number)


class Contexts(NamedTuple):
    """The different observations of a log."""

    keys: np.ndarray
    """(X,) sorted keys of the observations; see `_keys`."""
    of: np.ndarray
    """(N,) int64, the index of the observation that each step saw."""


def contexts_of(logged: EpisodeBatch) -> Contexts | None:
    """The contexts of a log.

    None if there are more than `MOST_CONTEXTS`, or if an observation is empty or too large to be a context.
    """
    leaves = logged.leaves(columns.OBS).values()
    rows = np.flatnonzero(logged.is_step)
    if not 0 < sum(leaf[:1].nbytes for leaf in leaves) <= MOST_BYTES:
        return None
    if len(np.unique(_keys(logged, rows[:ROWS_LOOKED_AT]))) > MOST_CONTEXTS:
        return None
    keys, context = np.unique(_keys(logged, rows), return_inverse=True)
    return Contexts(keys, context) if len(keys) <= MOST_CONTEXTS else None


@dataclass(frozen=True, slots=True)
class QTable:
    """Means of rewards by context and action, for each part of the episodes those of all other parts."""

    contexts: np.ndarray
    """(X,) sorted keys, see `Contexts`."""
    values: np.ndarray
    """(parts, X + 1, A) float64; the last context is of those that were never seen."""
    part: np.ndarray
    """(E,) int64, the part of each episode."""
    policies: Sequence[TargetPolicy]
    explore: bool

    @classmethod
    def of(
        cls, logged: EpisodeBatch, policies: Sequence[TargetPolicy], part: np.ndarray, *, horizon: int | None, explore: bool
    ) -> QTable | None:
        """None: something follows a first step within the horizon, actions are no list, or contexts are too many.

        Arguments:
            logged: as `fqe.fit` takes it.
            part: (E,) int64.
        """
        goes_on = len(logged) > logged.num_episodes or not (horizon == 1 or logged.at_end(columns.TERMINATEDS).all())
        if goes_on or not all(is_listed(policy.head) for policy in policies):
            return None
        contexts, actions = contexts_of(logged), size_of(policies[0])
        if contexts is None or len(contexts.keys) * actions > MOST_CELLS:
            return None
        taken, rewards = taken_of(logged, policies[0]), logged.of_steps(columns.REWARDS)
        values = [
            means(contexts.of[learned], taken[learned], rewards[learned], len(contexts.keys) + 1, actions)
            for number in range(part.max() + 1)
            for learned in [fitted_to(part, number)]
        ]
        return cls(contexts.keys, np.stack(values), part, policies, explore)

    def said_of(self, batch: EpisodeBatch, part: np.ndarray) -> Iterator[Said]:
        """Yield for each policy what the table says of E episodes.

        Arguments:
            part: (E,) of which part each episode is taken to be.
        """
        first = batch.first[batch.is_step]
        keys = _keys(batch, first)
        context = np.minimum(np.searchsorted(self.contexts, keys), len(self.contexts) - 1)
        context = np.where(self.contexts[context] == keys, context, len(self.contexts))
        errors = batch.of_steps(columns.REWARDS) - self.values[part, context, taken_of(batch, self.policies[0])]
        for number in range(len(self.policies)):
            inputs = torch.from_numpy(batch[inputs_of(number)])
            starts = np.empty(len(part))
            for begin in range(0, len(part), ROWS_LOOKED_AT):
                rows = slice(begin, begin + ROWS_LOOKED_AT)
                own, worth = inputs[torch.from_numpy(first[rows])], self.values[part[rows], context[rows]]
                if self.explore:
                    starts[rows] = (own.double().softmax(dim=1).numpy() * worth).sum(axis=1)
                else:
                    starts[rows] = worth[np.arange(len(worth)), own.argmax(dim=1).numpy()]
            yield starts, errors, np.zeros(len(part))


def means(contexts: np.ndarray, actions: np.ndarray, rewards: np.ndarray, rows: int, width: int) -> np.ndarray:
    """(rows, width) float64 means of rewards, each shrunken towards what its action and its context say by themselves.

    A cell counts as its own mean as far as cells differ by more than their rewards' noise would let them, and as the product
    of the means of its action and of its context else (of their sum, if a mean is not above 0); so do the means of actions and
    contexts beside that of all. Empirical Bayes, by the method of moments (Morris 1983, "Parametric empirical Bayes
    inference").

    Arguments:
        contexts, actions: (N,) int64.
        rewards: (N,) float64.
    """
    mean, cells = rewards.mean(), contexts * width + actions
    by_action = _shrunken(actions, rewards, np.full(width, mean))
    by_context = _shrunken(contexts, rewards, np.full(rows, mean))
    if by_action.min() > 0 and by_context.min() > 0:
        expected = by_context[:, None] * by_action / mean
    else:
        expected = by_context[:, None] + by_action - mean
    return _shrunken(cells, rewards, expected.ravel()).reshape(rows, width)


def _shrunken(groups: np.ndarray, rewards: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """(G,) means of the rewards of each group, between what is expected of it and what it has."""
    counts = np.bincount(groups, minlength=len(expected)).astype(np.float64)
    deviations = np.bincount(groups, weights=rewards - expected[groups], minlength=len(expected))
    noise = float(((rewards - expected[groups]) ** 2).mean())
    # Of G groups that do not differ, the squares of sums of n rewards are n times the noise, in the mean.
    between = (deviations**2 - noise * counts).sum() / max(float((counts**2).sum()), 1.0)
    if between <= 0 or noise == 0:
        return expected + (np.divide(deviations, counts, out=np.zeros(len(counts)), where=counts > 0) if noise == 0 else 0.0)
    return np.asarray(expected + deviations / (counts + noise / between))


def size_of(policy: TargetPolicy) -> int:
    """The number of actions in the list of a policy."""
    assert isinstance(policy.head, CategoricalHead)
    return policy.head.sizes[0]


def taken_of(batch: EpisodeBatch, policy: TargetPolicy) -> np.ndarray:
    """(N,) int64 numbers of the actions that were taken, from 0."""
    assert isinstance(policy.head, CategoricalHead)
    [actions] = batch.leaves(columns.ACTIONS).values()
    return np.asarray(actions.reshape(len(actions))[batch.is_step].astype(np.int64) - int(policy.head.starts[0]))


def _keys(batch: EpisodeBatch, rows: np.ndarray) -> np.ndarray:
    """(rows,) the bytes of each observation."""
    leaves = [np.ascontiguousarray(leaf[rows].reshape(len(rows), -1)) for leaf in batch.leaves(columns.OBS).values()]
    joined = np.concatenate([leaf.view(np.uint8) for leaf in leaves], axis=1)
    return np.asarray(joined.view(f"V{joined.shape[1]}").reshape(len(rows)))
