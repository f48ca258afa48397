"""Filter episodes when pruning: a function of an episode returns whether to keep it.

offline prune runs/recording runs/upright -s 'filters=[{path: examples.filter:upright, arguments: {limit: 0.15}}]'
"""

import numpy as np

import offline_core as offline


def upright(episode: offline.Episode, *, limit: float) -> bool:
    """Whether CartPole's pole never leans by more than `limit` radians (it counts as fallen from 0.21)."""
    angles = episode.get_observations()[:, 2]
    return bool(np.abs(angles).max() <= limit)
