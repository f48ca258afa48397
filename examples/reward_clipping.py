"""Clip rewards with a function as a connector, as DQN's authors did (Mnih et al. 2015).

    offline train runs/recording runs/policy -s algorithm=marwil \\
        -s 'data.connectors=[{path: examples.reward_clipping:clip_rewards, arguments: {high: 0.5}}]'
"""

import numpy as np

import offline_core as offline


def clip_rewards(steps: offline.EpisodeBatch, *, low: float = -1.0, high: float = 1.0) -> offline.EpisodeBatch:
    """Rewards (R,) below `low` become `low`, those above `high` become `high`."""
    return steps | {"rewards": np.clip(steps["rewards"], low, high)}
