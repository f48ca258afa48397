"""The policies that are judged on a log, trained or stated, and what they say of recorded observations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import torch
from torch import Tensor

from offline_core.judging.estimation.observations import Observations, rows_at_a_time
from offline_core.judging.estimation.stated import FunctionOfObservations, ProbabilityColumn
from offline_core.policies.policy import Policy

TargetPolicy: TypeAlias = Policy | FunctionOfObservations | ProbabilityColumn
"""A checkpoint, or what stands for a policy without one. All have spaces, a network and a head for its inputs."""


@torch.no_grad()
def distribution_inputs(policy: TargetPolicy, observations: Observations) -> Tensor:
    """The policy's distribution inputs for each observation, (R, inputs) float32, after all before it in its episode.

    Memory: see `rows_at_a_time`, or one episode if it is recurrent.
    """
    if not isinstance(policy, Policy):
        return policy.inputs_at(observations)
    at_a_time = rows_at_a_time(policy.encoder.size, frames=policy.network.frames)
    if policy.network.recurrent is None:
        rows = torch.arange(len(observations)).split(at_a_time)
        return torch.cat([policy(observations.at(part, frames=policy.network.frames)) for part in rows])
    inputs = torch.empty(len(observations), policy.head.inputs_size)
    for episodes in _of_like_lengths(observations.lengths, at_a_time):
        lengths = observations.lengths[episodes][:, None]
        time = torch.arange(int(lengths.max()))
        rows = observations.starts[episodes][:, None] + torch.minimum(time, lengths - 1)
        is_step = (time < lengths).flatten()  # padding comes after the end, so the memory before it is not affected
        inputs[rows.flatten()[is_step]] = policy(observations.at(rows))[is_step]
    return inputs


def columns_read(policies: Iterable[TargetPolicy]) -> list[str]:
    """Columns of the log that some of these policies need besides observations."""
    return [policy.column for policy in policies if isinstance(policy, ProbabilityColumn)]


def _of_like_lengths(lengths: Tensor, steps: int) -> list[Tensor]:
    """Episodes in groups that a recurrent network processes together, of so many steps unless one alone is longer."""
    groups: list[Tensor] = []
    order = lengths.argsort(descending=True, stable=True)
    while len(order):
        together = max(1, steps // int(lengths[order[0]]))
        groups.append(order[:together])
        order = order[together:]
    return groups
