"""The learner: a policy, its optimiser, and one update."""

from __future__ import annotations

import torch
from torch import Tensor

from offline_core.episodes import columns, nested
from offline_core.learning.config import OptimizerConfig
from offline_core.learning.feed import FlatBatch
from offline_core.learning.losses import Batch, Loss
from offline_core.policies.policy import Policy


class Learner:
    """Updates a policy in this process.

    Arguments:
        policy: updated in place.
        loss: what to minimise.
        optimizer: step size and clipping.
    """

    def __init__(self, policy: Policy, loss: Loss, optimizer: OptimizerConfig) -> None:
        self.policy = policy
        self.loss = loss
        self.max_gradient_norm = optimizer.max_gradient_norm
        self.optimizer = torch.optim.Adam(policy.parameters(), lr=optimizer.learning_rate, fused=True)

    def update(self, batch: FlatBatch) -> dict[str, Tensor]:
        """One gradient step on one batch of flat columns; the numbers to watch, still tensors, so that nothing waits."""
        loss, metrics = self.loss(self.policy, self.nested(batch))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if self.max_gradient_norm is not None:
            metrics["gradient_norm"] = torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_gradient_norm)
        self.optimizer.step()
        return metrics

    def nested(self, batch: FlatBatch) -> Batch:
        """Flat columns as the spaces nest them."""
        spaces = {
            columns.OBS: self.policy.observation_space,
            columns.NEW_OBS: self.policy.observation_space,
            columns.ACTIONS: self.policy.action_space,
        }
        composite = {name: nested.unflatten(batch, name, space) for name, space in spaces.items() if _has(batch, name)}
        return {name: tensor for name, tensor in batch.items() if "/" not in name} | composite


def _has(batch: FlatBatch, name: str) -> bool:
    return any(key == name or key.startswith(f"{name}/") for key in batch)
