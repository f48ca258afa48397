"""Measure something in an evaluation: see each step of all copies at once, then return numbers by name.

offline evaluate runs/policy/best -s 'metrics=[{path: examples.metric:Centred, arguments: {limit: 0.5}}]'
"""

import numpy as np

import offline_core as offline


class Centred:
    """The share of the episodes in which CartPole's cart is always within `limit` of the middle."""

    def __init__(self, *, limit: float) -> None:
        self.limit = limit
        self.strayed = np.zeros(1, bool)
        self.episodes: list[bool] = []

    def look(self, step: offline.PlayedStep) -> None:
        positions = np.abs([step.observations[:, 0], step.next_observations[:, 0]])
        outside = (positions > self.limit).any(axis=0)
        self.strayed = self.strayed | (step.counts & outside)
        self.episodes += (~self.strayed[step.ends]).tolist()
        self.strayed &= ~step.ends

    def result(self) -> dict[str, float]:
        return {"centred": float(np.mean(self.episodes))}
