"""Define an algorithm: cloning that weighs each step by a column `weights` of the data or of a connector.

    offline train runs/weighted runs/policy \\
        -s 'algorithm={path: examples.loss:WeightedCloning, arguments: {floor: 0.1}}'

The connectors of examples/marwil_sequence.py add such a column.
"""

from typing import Any

from pydantic import Field

import offline_core as offline

WEIGHTS = "weights"


class WeightedCloning(offline.Algorithm):
    """Maximises the likelihood of the actions, each times its weight. Its fields are what `arguments` sets."""

    floor: float = Field(0.0, ge=0, description="No step counts less than this.")

    stored = batch_columns = ("obs", "actions", WEIGHTS)
    loss_compares = True  # the weights are those of the data

    def loss(self, networks: offline.Networks, batch: dict[str, Any]) -> offline.LossOutput:
        policy = networks.policy
        inputs = policy(batch["obs"]).float()
        weights = batch[WEIGHTS].clamp(min=self.floor)
        loss = -weights * policy.head.log_prob(inputs, batch["actions"])
        return offline.LossOutput(loss, {"weight": weights})
