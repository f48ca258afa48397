"""Whether recorded probabilities of actions add up to 1: looked at before a number that is computed from them is believed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from offline_core.data.episodes import EpisodeBatch, columns
from offline_core.judging.estimation.diagnostics import ENOUGH_STEPS, STANDARD_ERRORS
from offline_core.judging.estimation.logged import LOG_BEHAVIOUR
from offline_core.judging.estimation.q_function import is_listed
from offline_core.judging.estimation.q_table import contexts_of, size_of, taken_of
from offline_core.judging.estimation.target import TargetPolicy

NOTICED = 0.02
"""How far a sum of probabilities may be from 1 for the precision of what was recorded."""
OTHER_BASES = (10, 2)
"""Bases other than e to which probabilities may have been logged."""


def about_recorded(seen: EpisodeBatch, policy: TargetPolicy) -> Iterator[str]:
    """What `about_propensities` says of a log whose actions are a list.

    Arguments:
        seen: with observations, actions and `LOG_BEHAVIOUR`.
        policy: one of the same spaces.
    """
    if is_listed(policy.head):
        contexts = contexts_of(seen)
        context = None if contexts is None else contexts.of
        yield from about_propensities(seen.of_steps(LOG_BEHAVIOUR), taken_of(seen, policy), context, count=size_of(policy))


def about_propensities(logs: np.ndarray, actions: np.ndarray, contexts: np.ndarray | None, *, count: int) -> Iterator[str]:
    """Say that the probabilities of the actions of a list do not add up to 1.

    One over the probability of what was done is, in the mean, the number of actions that could be done. It is more than there
    are if probabilities are too small, and less if they are too large, at least in contexts where each action was seen.

    Arguments:
        logs: (N,) float64 that were recorded.
        actions: (N,) int64 from 0.
        contexts: (N,) int64, the same where the observation is; None: there are too many.
        count: of the actions in the list.
    """
    shares = _shares(logs, count)
    if error := _far(shares, at_most=True):
        yield _told(shares, error, f"of its {count:,} actions", _base(logs, count))
        return
    if contexts is None:
        return
    cells = np.zeros((int(contexts.max()) + 1, count), bool)
    cells[contexts, actions] = True
    whole = np.asarray(cells.all(axis=1))[contexts]
    if whole.any() and (error := _far(shares[whole], at_most=False)):
        yield _told(
            shares[whole], error, f"of its {count:,} actions, in contexts where each was seen,", _base(logs[whole], count)
        )


def _shares(logs: np.ndarray, count: int) -> np.ndarray:
    return np.asarray(np.exp(np.minimum(-logs, 700.0)) / count)


def _base(logs: np.ndarray, count: int) -> int | None:
    """The base of the logarithms, if probabilities add up to 1 by it."""
    return next((base for base in OTHER_BASES if _far(_shares(logs * np.log(base), count), at_most=False) is None), None)


def _far(shares: np.ndarray, *, at_most: bool) -> float | None:
    """Standard error of the mean, if it is too far from 1."""
    error = float(shares.std() / len(shares) ** 0.5)
    size = shares.sum() ** 2 / (shares**2).sum()
    deviation = float(shares.mean()) - 1
    is_far = (deviation if at_most else abs(deviation)) > max(STANDARD_ERRORS * error, NOTICED)
    return error if size >= ENOUGH_STEPS and is_far else None


def _told(shares: np.ndarray, error: float, of: str, base: int | None) -> str:
    mean = float(shares.mean())
    if base is None:
        why = (
            "They are of another policy, of a logarithm to another base than e, or of one of several choices: import what the "
            "behaviour said of the whole action, as natural logarithms."
        )
    else:
        why = (
            f"As logarithms to the base {base} they do: import natural ones, such as columns: {{computed: {{natural: "
            f"logp * {np.log(base):.6g}}}}} of a column logp, and mapping: {{action_logp: natural}}."
        )
    return (
        f"The recorded {columns.ACTION_LOGP} cannot be how probable the actions were: the probabilities {of} sum to about "
        f"{1 / mean:.3g} instead of 1 (one over that of what was done is {mean:.3g} ± {error:.2g} times their number). {why}"
    )
