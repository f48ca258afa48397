"""Functions that are judged as policies: they are called with observations of the chain or of a Box."""

from __future__ import annotations

import numpy as np

from tests.judging.estimation.chains import TARGET


def target(observations: np.ndarray) -> np.ndarray:
    """(B, 2) probabilities."""
    return TARGET[observations]


def greedy(observations: np.ndarray) -> np.ndarray:
    """(B,) the most likely action."""
    return TARGET.argmax(axis=1)[observations]


def drawn(observations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(B, 1) means and standard deviations."""
    return np.full((len(observations), 1), 0.2), np.full((len(observations), 1), 0.5)


def point(observations: np.ndarray) -> np.ndarray:
    """(B, 1) an action of a Box."""
    return np.full((len(observations), 1), 0.2)


def fails(observations: np.ndarray) -> np.ndarray:
    raise KeyError("tout")


def short(observations: np.ndarray) -> np.ndarray:
    return np.zeros(len(observations) - 1, int)


def outside(observations: np.ndarray) -> np.ndarray:
    return np.full(len(observations), 2)


def halves(observations: np.ndarray) -> np.ndarray:
    return np.full(len(observations), 0.5)


def words(observations: np.ndarray) -> list[str]:
    return ["left"] * len(observations)


def uncertain(observations: np.ndarray) -> np.ndarray:
    return np.full((len(observations), 2), 0.7)
