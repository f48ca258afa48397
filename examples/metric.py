"""A metric of your own for evaluations: it looks at each step of all copies at once, then says what it measured.

offline evaluate runs/policy/best -s 'metrics=[{path: examples.metric:Centred, arguments: {limit: 0.5}}]'
"""

import numpy as np

from offline_core.evaluation.metric import PlayedStep


class Centred:
    """The share of the episodes in which CartPole's cart is always within `limit` of the middle."""

    def __init__(self, *, limit: float) -> None:
        self.limit = limit
        self.strayed = np.zeros(1, bool)
        self.episodes: list[bool] = []

    def look(self, step: PlayedStep) -> None:
        places = np.abs([step.observations[:, 0], step.next_observations[:, 0]])
        outside = (places > self.limit).any(axis=0)
        self.strayed = self.strayed | (step.counts & outside)
        self.episodes += (~self.strayed[step.ends]).tolist()
        self.strayed &= ~step.ends

    def result(self) -> dict[str, float]:
        return {"centred": float(np.mean(self.episodes))}
