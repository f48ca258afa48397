"""A connector that is a function: rewards between two bounds, as DQN's authors had them (Mnih et al. 2015).

    offline train runs/recording runs/policy -s algorithm=marwil \\
        -s 'data.connectors=[{path: examples.reward_clipping:clip_rewards, arguments: {high: 0.5}}]'
"""

import numpy as np

from offline_core.prelearner.layout import Columns


def clip_rewards(steps: Columns, *, low: float = -1.0, high: float = 1.0) -> Columns:
    """Rewards (R,) below `low` become `low`, those above `high` become `high`."""
    return steps | {"rewards": np.clip(steps["rewards"], low, high)}
