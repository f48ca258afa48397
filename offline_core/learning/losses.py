"""Losses: small functions from a policy and a batch to a number to minimise and numbers to watch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import Tensor

from offline_core.episodes import columns
from offline_core.policies.policy import Policy

Batch: TypeAlias = dict[str, Any]
"""Nested tensors by column name, (B, …) each."""
Loss: TypeAlias = Callable[[Policy, Batch], tuple[Tensor, dict[str, Tensor]]]


@dataclass(frozen=True, slots=True)
class Algorithm:
    """What an algorithm needs and does."""

    wanted: tuple[str, ...]
    """Columns of the dataset."""
    loss: Loss
    value_function: bool


def bc_loss(policy: Policy, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    """Behaviour cloning: the mean negative log-likelihood of the recorded actions."""
    inputs = policy(batch[columns.OBS])
    loss = -policy.head.log_prob(inputs, batch[columns.ACTIONS]).mean()
    return loss, {"loss": loss.detach(), "entropy": policy.head.entropy(inputs).mean().detach()}


ALGORITHMS = {"bc": Algorithm(wanted=(columns.OBS, columns.ACTIONS), loss=bc_loss, value_function=False)}
